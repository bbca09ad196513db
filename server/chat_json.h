// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// JSON as parsed from a request, in the form that chat templates take.
//
// Pure; any thread.  Fails: InvalidArgument if it is nested too deeply.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "engine/text/chat_template.h"
#include "engine/text/json_value.h"

namespace baton::server {

// Keys keep their order, which a template can print; so parse requests as ordered_json.
absl::StatusOr<text::JsonValue> ToJsonValue(const nlohmann::ordered_json& json);

// {"messages": […], "add_generation_prompt": true, "tools": […], "chat_template_kwargs": {…}};
// all but the messages may be left out.  Content parts are not flattened.
absl::StatusOr<text::ChatInput> ToChatInput(const nlohmann::ordered_json& request);

}  // namespace baton::server

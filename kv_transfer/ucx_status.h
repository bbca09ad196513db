// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// ucs_status_t -> absl::Status: the only place that knows what a UCX error means to the rest.
#pragma once

#include <ucs/type/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton::kv {

// UNAVAILABLE: this peer or path is gone, another may do.  "context: UCX's words".
// UCS_OK and UCS_INPROGRESS are OK.
absl::Status FromUcs(ucs_status_t status, absl::string_view context);

}  // namespace baton::kv

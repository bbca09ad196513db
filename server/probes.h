// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a role answers to probes and scrapes, on its admin port (and probes on the API's).
//
// /live and /health say that the process works: they fail only when its loop is wedged.
// /ready says that it takes work.  None of them waits for the loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/metrics.h"
#include "server/http_server.h"

namespace baton::server {

struct Probes {
  std::function<bool()> live;
  std::function<bool()> ready;
  std::function<std::string()> detail;  // a JSON object for /ready's body
  const Metrics* metrics = nullptr;     // null: /metrics is not served here
};

// The answer, if the request is one of these; with 405 for methods other than GET and HEAD.
std::optional<HttpResponse> AnswerProbe(const Probes& probes, const HttpRequest& request);

// The handler of an admin port.
HttpHandler AdminHandler(Probes probes);

}  // namespace baton::server

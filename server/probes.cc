// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/probes.h"

#include "absl/strings/str_cat.h"

namespace baton::server {

std::optional<HttpResponse> AnswerProbe(const Probes& probes, const HttpRequest& request) {
  const absl::string_view path = request.path();
  const bool metrics = path == "/metrics" && probes.metrics != nullptr;
  const bool health = path == "/live" || path == "/health";
  if (!metrics && !health && path != "/ready") return std::nullopt;
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse refused = HttpError(405, "only GET is allowed here", "invalid_request_error");
    refused.headers.emplace_back("Allow", "GET, HEAD");
    return refused;
  }
  HttpResponse response;
  if (metrics) {
    response.headers.emplace_back("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    response.body = probes.metrics->Text();
    return response;
  }
  const bool good = health ? probes.live() : probes.ready();
  response.status = good ? 200 : 503;
  response.headers.emplace_back("Content-Type", "application/json");
  response.headers.emplace_back("Cache-Control", "no-store");
  const std::string detail = probes.detail ? probes.detail() : "{}";
  response.body =
      absl::StrCat("{\"status\":\"", good ? "ok" : "unavailable", "\",\"detail\":", detail, "}\n");
  return response;
}

HttpHandler AdminHandler(Probes probes) {
  return [probes = std::move(probes)](std::shared_ptr<HttpExchange> exchange) {
    if (auto response = AnswerProbe(probes, exchange->request())) {
      exchange->Send(*std::move(response));
    } else {
      exchange->Send(HttpError(404, "this port serves /metrics, /live, /ready and /health",
                               "invalid_request_error"));
    }
  };
}

}  // namespace baton::server

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/this_thread.h"
#include "server/http_connection.h"

namespace baton::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

}  // namespace

absl::string_view HttpRequest::path() const {
  const absl::string_view whole = target;
  return whole.substr(0, whole.find('?'));
}

absl::string_view HttpRequest::header(absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

struct HttpServer::State {
  HttpShared shared;
  asio::io_context context;
  tcp::acceptor acceptor{context};
  asio::steady_timer pause{context};
  uint16_t port = 0;
  std::vector<std::thread> threads;

  void Accept();
  void OnAccepted(const error_code& error, tcp::socket socket);
};

void HttpServer::State::Accept() {
  acceptor.async_accept(asio::make_strand(context),
                        [this](const error_code& error, tcp::socket socket) {
                          OnAccepted(error, std::move(socket));
                        });
}

void HttpServer::State::OnAccepted(const error_code& error, tcp::socket socket) {
  if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
  if (error) {
    // Out of descriptors, most likely: connections that end give some back.
    LogWarn("cannot accept a connection", {{"why", error.message()}});
    pause.expires_after(std::chrono::milliseconds(100));
    pause.async_wait([this](const error_code& stopped) {
      if (!stopped) Accept();
    });
    return;
  }
  if (shared.connections < shared.limits.connections_max) {
    std::make_shared<HttpConnection>(std::move(socket), &shared)->Start();
  }
  Accept();
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Options& options,
                                                              HttpHandler handler) {
  auto state = std::make_unique<State>();
  state->shared.handler = std::move(handler);
  state->shared.limits = options.limits;
  const std::string where = absl::StrCat(options.host, ":", options.port);
  error_code error;
  const auto found = tcp::resolver(state->context)
                         .resolve(options.host, std::to_string(options.port),
                                  tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", where, ": ", error.message()));
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor& acceptor = state->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", where, ": ", error.message()));
  }
  state->port = acceptor.local_endpoint().port();
  state->Accept();
  for (int i = 0; i < options.threads; ++i) {
    state->threads.emplace_back([context = &state->context] {
      NameThisThread("http");
      context->run();
    });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Stop() {
  if (state_->threads.empty()) return;
  Drain();
  for (int i = 0; i < 200 && state_->shared.answering > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  state_->context.stop();
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
}

uint16_t HttpServer::port() const { return state_->port; }

void HttpServer::Drain() {
  state_->shared.draining = true;
  asio::post(state_->context, [state = state_.get()] {
    error_code ignored;
    state->acceptor.close(ignored);
  });
}

size_t HttpServer::connections() const { return state_->shared.connections; }

HttpResponse HttpError(int status, absl::string_view message, absl::string_view type,
                       absl::string_view param, absl::string_view code) {
  auto text = [](absl::string_view value) {
    return value.empty() ? std::string("null") : JsonQuote(value);
  };
  HttpResponse response;
  response.status = status;
  response.headers = {{"Content-Type", "application/json"}};
  response.body =
      absl::StrCat("{\"error\":{\"message\":", JsonQuote(message), ",\"type\":", JsonQuote(type),
                   ",\"param\":", text(param), ",\"code\":", text(code), "}}");
  return response;
}

}  // namespace baton::server

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A small asynchronous HTTP/1.1 server: the front end's API and every role's admin port.
//
// It reads whole requests (bounded), hands each to the handler and writes what the handler
// answers, now or later, from any thread.  Requests of one connection are answered one after
// the other; what a client pipelines waits.  A client that goes away, or reads so slowly that
// its buffer fills, is told to the exchange at once.
//
// Threads:  its own; handlers run on them and must not block.
// Failure:  malformed, oversized and slow requests are answered here (400, 413, 431, 408) with
//           an OpenAI error body; a port in use is an UNAVAILABLE status from Start.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton::server {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string target;   // as sent: path and query
  HttpHeaders headers;  // names in lower case
  std::string body;
  absl::Time received;  // its last byte; on the process's clock

  absl::string_view path() const;  // of the target; still percent-encoded
  // The first value of a header (`name` in lower case); empty if there is none.
  absl::string_view header(absl::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // Content-Length and the connection's own are added
  std::string body;
};

// One request and its answer: either Send once, or StartStream, Write…, Finish.
// Any thread; one thread at a time calls the answering methods.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual void Send(HttpResponse response) = 0;
  virtual void StartStream(HttpResponse head) = 0;  // its body is not used
  // False once the reader is gone or too slow: nothing more can be said to it.
  virtual bool Write(absl::string_view bytes) = 0;
  virtual void Finish() = 0;
  // Called once if the client goes before the answer is finished; at once if it is gone
  // already.  Runs on a thread of the server.
  virtual void OnGone(std::function<void()> gone) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

struct HttpLimits {
  size_t body_bytes = 64u << 20;
  size_t header_bytes = 64u << 10;
  size_t stream_buffer_bytes = 4u << 20;  // waiting for one reader
  size_t connections_max = 4096;
  absl::Duration idle = absl::Seconds(180);  // above gateways' pool idle time of 60 to 90 s
  absl::Duration header = absl::Seconds(30);
  absl::Duration body = absl::Seconds(120);
  absl::Duration write_stall = absl::Seconds(60);
  absl::Duration linger = absl::Seconds(2);  // reading what a refused client still sends
};

class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 0;  // 0: any
    int threads = 1;
    HttpLimits limits;
  };
  // Listens from here on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Options& options,
                                                           HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // No new connections; answers from here on say Connection: close.
  void Drain();
  // No new connections; answers that are on their way get a second to leave; then ends its
  // threads: no handler runs any more and nothing more is written.  Exchanges may
  // outlive this, but not the server.
  void Stop();
  size_t connections() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// {"error":{message,type,param,code}} with all four keys; empty param and code become null.
HttpResponse HttpError(int status, absl::string_view message, absl::string_view type,
                       absl::string_view param = "", absl::string_view code = "");

}  // namespace baton::server

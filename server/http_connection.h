// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One HTTP/1.1 connection: a read loop that never stops, a parser that it feeds, and a queue
// of bytes to write.
//
// Reading goes on while a request is answered: that is how a client's departure is seen.  What
// arrives meanwhile (pipelining) is kept, up to a bound, for the next request.
//
// Thread:     everything but Post… runs on the connection's strand.
// Ownership:  its operations keep it alive; it ends when its socket is closed.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/http_server.h"

namespace baton::server {

// What all connections of a server share; outlives them.
struct HttpShared {
  HttpHandler handler;
  HttpLimits limits;
  std::atomic<bool> draining{false};
  std::atomic<size_t> connections{0};
  std::atomic<size_t> answering{0};  // connections whose answer is not yet out
};

class HttpExchangeImpl;

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, HttpShared* shared);
  ~HttpConnection();

  void Start();
  // From any thread: queue bytes; `last` ends the answer; `keep` then reads the next request.
  void PostWrite(std::string bytes, bool last, bool keep);
  void PostClose();

 private:
  enum class State { kReading, kAnswering, kLingering, kClosed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void NextRequest();
  void Read();
  void OnRead(const boost::system::error_code& error, size_t size);
  void Parse();
  void OnHeader();
  void Dispatch();
  void Refuse(int status, absl::string_view message);
  void Queue(std::string bytes, bool last, bool keep);
  void WriteNext();
  // Sends what the socket takes at once, which nearly always is everything: no operation waits and
  // no timer is set.  False: the rest must wait, or the connection is closed.
  bool SendNow();
  void OnWritable(const boost::system::error_code& error);
  void AfterAnswer();
  void Arm(absl::Duration after);
  void OnTimer();
  void Close();

  HttpShared* const shared_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  State state_ = State::kReading;
  std::array<char, 16384> chunk_;
  std::string unparsed_;  // received, not yet given to a parser
  bool reading_ = false;
  std::optional<Parser> parser_;
  bool header_seen_ = false;
  std::shared_ptr<HttpExchangeImpl> exchange_;
  std::deque<std::string> writes_;
  bool writing_ = false;
  bool answered_ = false;  // everything of the current answer is queued
  bool keep_ = true;
  size_t lingered_bytes_ = 0;
};

class HttpExchangeImpl final : public HttpExchange {
 public:
  HttpExchangeImpl(std::shared_ptr<HttpConnection> connection, HttpShared* shared,
                   HttpRequest request, bool keep_alive, bool chunked);

  const HttpRequest& request() const override { return request_; }
  void Send(HttpResponse response) override;
  void StartStream(HttpResponse head) override;
  bool Write(absl::string_view bytes) override;
  void Finish() override;
  void OnGone(std::function<void()> gone) override;

  void Gone();                                            // by the connection
  void Written(size_t bytes) { queued_bytes_ -= bytes; }  // by the connection

 private:
  bool keep() const { return keep_alive_ && !shared_->draining; }
  std::string Head(const HttpResponse& response, bool stream) const;

  const std::shared_ptr<HttpConnection> connection_;
  HttpShared* const shared_;
  const HttpRequest request_;
  const bool keep_alive_;
  const bool chunked_;  // HTTP/1.1: a stream's end is a chunk; else the connection's end
  std::atomic<size_t> queued_bytes_{0};
  Mutex mutex_;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_gone_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::server

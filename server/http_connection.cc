// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/http_connection.h"

#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>
#include <chrono>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace baton::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

// Received ahead of the request being answered; more is left in the socket.
constexpr size_t kReadAheadBytes = 256u << 10;
constexpr size_t kLingerBytes = 256u << 20;

std::string HttpDate() {
  return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT",
                          absl::FromChrono(std::chrono::system_clock::now()), absl::UTCTimeZone());
}

}  // namespace

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, HttpShared* shared)
    : shared_(shared), socket_(std::move(socket)), timer_(socket_.get_executor()) {
  ++shared_->connections;
}

HttpConnection::~HttpConnection() { --shared_->connections; }

void HttpConnection::Start() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    error_code ignored;
    self->socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    self->socket_.non_blocking(true, ignored);
    self->NextRequest();
  });
}

void HttpConnection::PostWrite(std::string bytes, bool last, bool keep) {
  asio::post(socket_.get_executor(),
             [self = shared_from_this(), bytes = std::move(bytes), last, keep]() mutable {
               self->Queue(std::move(bytes), last, keep);
             });
}

void HttpConnection::PostClose() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Close(); });
}

void HttpConnection::NextRequest() {
  state_ = State::kReading;
  parser_.emplace();
  parser_->eager(true);
  parser_->body_limit(shared_->limits.body_bytes);
  parser_->header_limit(static_cast<uint32_t>(shared_->limits.header_bytes));
  header_seen_ = false;
  answered_ = false;
  Arm(shared_->limits.idle);
  Parse();
  Read();
}

void HttpConnection::Read() {
  if (reading_ || state_ == State::kClosed) return;
  if (state_ == State::kAnswering && unparsed_.size() >= kReadAheadBytes) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_),
                          [self = shared_from_this()](const error_code& error, size_t size) {
                            self->OnRead(error, size);
                          });
}

void HttpConnection::OnRead(const error_code& error, size_t size) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error) return Close();
  if (state_ == State::kLingering) {
    lingered_bytes_ += size;
    if (lingered_bytes_ > kLingerBytes) return Close();
  } else {
    if (state_ == State::kReading && unparsed_.empty() && !header_seen_) {
      Arm(shared_->limits.header);
    }
    unparsed_.append(chunk_.data(), size);
    Parse();
  }
  Read();
}

void HttpConnection::Parse() {
  size_t used_total = 0;
  while (state_ == State::kReading && used_total < unparsed_.size()) {
    error_code error;
    const size_t used = parser_->put(
        asio::buffer(unparsed_.data() + used_total, unparsed_.size() - used_total), error);
    used_total += used;
    if (error == http::error::need_more) break;
    if (error == http::error::body_limit) {
      Refuse(413, "the request's body is larger than this server accepts");
    } else if (error == http::error::header_limit) {
      Refuse(431, "the request's header is larger than this server accepts");
    } else if (error) {
      Refuse(400, absl::StrCat("malformed HTTP request: ", error.message()));
    } else {
      if (!header_seen_ && parser_->is_header_done()) OnHeader();
      if (parser_->is_done()) break;
      if (used == 0) break;
    }
  }
  unparsed_.erase(0, used_total);
  if (state_ == State::kReading && parser_->is_done()) Dispatch();
}

void HttpConnection::OnHeader() {
  header_seen_ = true;
  Arm(shared_->limits.body);
  const auto expect = parser_->get()[http::field::expect];
  if (boost::beast::iequals(expect, "100-continue") && !parser_->is_done()) {
    writes_.push_back("HTTP/1.1 100 Continue\r\n\r\n");
    WriteNext();
  }
}

void HttpConnection::Dispatch() {
  auto message = parser_->release();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) {
    request.headers.emplace_back(absl::AsciiStrToLower(std::string(field.name_string())),
                                 std::string(field.value()));
  }
  request.body = std::move(message.body());
  request.received = RealClock().Now();
  state_ = State::kAnswering;
  ++shared_->answering;
  timer_.cancel();
  exchange_ = std::make_shared<HttpExchangeImpl>(shared_from_this(), shared_, std::move(request),
                                                 message.keep_alive(), message.version() >= 11);
  shared_->handler(exchange_);
}

void HttpConnection::Refuse(int status, absl::string_view message) {
  HttpResponse response = HttpError(status, message, "invalid_request_error");
  std::string bytes =
      absl::StrCat("HTTP/1.1 ", status, " ",
                   std::string(http::obsolete_reason(static_cast<http::status>(status))),
                   "\r\nContent-Type: application/json\r\nContent-Length: ", response.body.size(),
                   "\r\nConnection: close\r\n\r\n", response.body);
  state_ = State::kAnswering;
  Queue(std::move(bytes), /*last=*/true, /*keep=*/false);
}

void HttpConnection::Queue(std::string bytes, bool last, bool keep) {
  if (state_ != State::kAnswering || answered_) return;
  if (!bytes.empty()) writes_.push_back(std::move(bytes));
  if (last) {
    answered_ = true;
    keep_ = keep;
  }
  WriteNext();
}

void HttpConnection::WriteNext() {
  if (writing_ || state_ == State::kClosed) return;
  if (SendNow()) {
    if (state_ == State::kAnswering && answered_) AfterAnswer();
    return;
  }
  if (state_ == State::kClosed) return;
  writing_ = true;
  if (state_ == State::kAnswering) Arm(shared_->limits.write_stall);
  socket_.async_wait(
      asio::ip::tcp::socket::wait_write,
      [self = shared_from_this()](const error_code& error) { self->OnWritable(error); });
}

bool HttpConnection::SendNow() {
  while (!writes_.empty()) {
    error_code error;
    std::string& next = writes_.front();
    const size_t sent = socket_.write_some(asio::buffer(next), error);
    if (error == asio::error::would_block) return false;
    if (error) {
      Close();
      return false;
    }
    if (exchange_ != nullptr) exchange_->Written(sent);
    if (sent == next.size()) {
      writes_.pop_front();
    } else {
      next.erase(0, sent);
    }
  }
  return true;
}

void HttpConnection::OnWritable(const error_code& error) {
  writing_ = false;
  if (state_ == State::kClosed) return;
  if (error) return Close();
  if (state_ == State::kAnswering) timer_.cancel();
  WriteNext();
}

void HttpConnection::AfterAnswer() {
  if (std::exchange(exchange_, nullptr) != nullptr) --shared_->answering;
  if (keep_) {
    NextRequest();
    return;
  }
  // Closing with unread bytes would reset the connection and might destroy the answer on its
  // way: say that we are done, and read until the client is, too.
  state_ = State::kLingering;
  unparsed_.clear();
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  Arm(shared_->limits.linger);
  Read();
}

void HttpConnection::Arm(absl::Duration after) {
  timer_.expires_after(absl::ToChronoNanoseconds(after));
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    // A timer that was armed anew after this wait had been queued is not over.
    if (!error && self->timer_.expiry() <= std::chrono::steady_clock::now()) self->OnTimer();
  });
}

void HttpConnection::OnTimer() {
  if (state_ == State::kReading && (header_seen_ || !unparsed_.empty())) {
    Refuse(408, "the request did not arrive in time");
  } else if (state_ == State::kAnswering && !writing_) {
    return;
  } else {
    Close();
  }
}

void HttpConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  if (const auto exchange = std::exchange(exchange_, nullptr)) {
    --shared_->answering;
    exchange->Gone();
  }
}

HttpExchangeImpl::HttpExchangeImpl(std::shared_ptr<HttpConnection> connection, HttpShared* shared,
                                   HttpRequest request, bool keep_alive, bool chunked)
    : connection_(std::move(connection)),
      shared_(shared),
      request_(std::move(request)),
      keep_alive_(keep_alive),
      chunked_(chunked) {}

std::string HttpExchangeImpl::Head(const HttpResponse& response, bool stream) const {
  std::string head =
      absl::StrCat("HTTP/1.1 ", response.status, " ",
                   std::string(http::obsolete_reason(static_cast<http::status>(response.status))),
                   "\r\nDate: ", HttpDate(), "\r\n");
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  if (!stream) {
    absl::StrAppend(&head, "Content-Length: ", response.body.size(), "\r\n");
  } else if (chunked_) {
    absl::StrAppend(&head, "Transfer-Encoding: chunked\r\n");
  }
  const bool keeps = keep() && (!stream || chunked_);
  absl::StrAppend(&head, "Connection: ", keeps ? "keep-alive" : "close", "\r\n\r\n");
  return head;
}

void HttpExchangeImpl::Send(HttpResponse response) {
  std::string bytes = Head(response, /*stream=*/false);
  if (request_.method != "HEAD") bytes += response.body;
  {
    MutexLock lock(&mutex_);
    over_ = true;
  }
  queued_bytes_ += bytes.size();
  connection_->PostWrite(std::move(bytes), /*last=*/true, keep());
}

void HttpExchangeImpl::StartStream(HttpResponse head) {
  std::string bytes = Head(head, /*stream=*/true);
  queued_bytes_ += bytes.size();
  connection_->PostWrite(std::move(bytes), /*last=*/false, /*keep=*/true);
}

bool HttpExchangeImpl::Write(absl::string_view bytes) {
  {
    MutexLock lock(&mutex_);
    if (gone_) return false;
  }
  if (bytes.empty()) return true;
  if (queued_bytes_ + bytes.size() > shared_->limits.stream_buffer_bytes) {
    connection_->PostClose();
    return false;
  }
  std::string framed =
      chunked_ ? absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n") : std::string(bytes);
  queued_bytes_ += framed.size();
  connection_->PostWrite(std::move(framed), /*last=*/false, /*keep=*/true);
  return true;
}

void HttpExchangeImpl::Finish() {
  {
    MutexLock lock(&mutex_);
    over_ = true;
  }
  std::string end = chunked_ ? "0\r\n\r\n" : "";
  queued_bytes_ += end.size();
  connection_->PostWrite(std::move(end), /*last=*/true, keep() && chunked_);
}

void HttpExchangeImpl::OnGone(std::function<void()> gone) {
  {
    MutexLock lock(&mutex_);
    if (!gone_) {
      on_gone_ = std::move(gone);
      return;
    }
    if (over_) return;
  }
  gone();
}

void HttpExchangeImpl::Gone() {
  std::function<void()> call;
  {
    MutexLock lock(&mutex_);
    gone_ = true;
    call = std::move(on_gone_);
    if (over_) call = nullptr;
  }
  if (call) call();
}

}  // namespace baton::server

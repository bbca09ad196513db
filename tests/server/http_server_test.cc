// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The HTTP server as a client with a plain socket sees it.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <mutex>
#include <string>

#include "base/bell.h"

namespace baton::server {
namespace {

class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const timeval patience{5, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~Client() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Send(const std::string& text) { (void)!send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Until `enough` or the end.
  std::string Read(const std::function<bool(const std::string&)>& enough) {
    std::string text;
    char buffer[4096];
    ssize_t size = 1;
    while (!enough(text) && (size = recv(fd_, buffer, sizeof(buffer), 0)) > 0) {
      text.append(buffer, static_cast<size_t>(size));
    }
    ended = size == 0;
    return text;
  }
  std::string ReadUntil(const std::string& end) {
    return Read([&](const std::string& text) { return text.find(end) != std::string::npos; });
  }
  std::string ReadAll() {
    return Read([](const std::string&) { return false; });
  }
  bool ended = false;

 private:
  int fd_;
};

// Answers /echo with the body, /stream with three events, /wait never.
struct Server {
  explicit Server(HttpLimits limits = HttpLimits()) {
    HttpServer::Options options;
    options.limits = limits;
    auto started = HttpServer::Start(
        options, [this](std::shared_ptr<HttpExchange> exchange) { Handle(std::move(exchange)); });
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  ~Server() {
    server->Stop();
    waiting.reset();
  }
  void Handle(std::shared_ptr<HttpExchange> exchange) {
    const HttpRequest& request = exchange->request();
    if (request.path() == "/stream") {
      exchange->StartStream({});
      for (const char* event : {"one\n", "two\n", "three\n"}) exchange->Write(event);
      exchange->Finish();
    } else if (request.path() == "/wait") {
      exchange->OnGone([this] { gone.Ring(); });
      std::lock_guard<std::mutex> lock(mutex);
      waiting = exchange;
      arrived.Ring();
    } else {
      exchange->Send({200, {{"Content-Type", "text/plain"}}, request.method + " " + request.body});
    }
  }
  Bell gone, arrived;
  std::mutex mutex;
  std::shared_ptr<HttpExchange> waiting;
  std::unique_ptr<HttpServer> server;
};

TEST_CASE("requests of one connection are answered in order, also when pipelined", "[http]") {
  Server server;
  Client client(server.server->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
      "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
  const std::string text = client.ReadUntil("POST hi");
  const size_t first = text.find("POST abc"), second = text.find("three"),
               third = text.find("POST hi");
  CHECK(first < second);
  CHECK(second < third);
  CHECK(third != std::string::npos);
  CHECK(text.find("Transfer-Encoding: chunked") != std::string::npos);
  CHECK(text.find("0\r\n\r\n") != std::string::npos);
}

TEST_CASE("a stream to an HTTP/1.0 client ends with its connection", "[http]") {
  Server server;
  Client client(server.server->port());
  client.Send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string text = client.ReadAll();
  CHECK(client.ended);
  CHECK(text.find("chunked") == std::string::npos);
  CHECK(text.find("one\ntwo\nthree\n") != std::string::npos);
}

TEST_CASE("bodies over the limit are a 413 that the client can read", "[http]") {
  HttpLimits limits;
  limits.body_bytes = 1000;
  Server server(limits);
  SECTION("announced") {
    Client client(server.server->port());
    client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n");
    client.Send(std::string(5000, 'x'));
    const std::string text = client.ReadAll();
    CHECK(text.find("HTTP/1.1 413") == 0);
    CHECK(text.find("\"error\"") != std::string::npos);
  }
  SECTION("chunked") {
    Client client(server.server->port());
    client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; ++i) client.Send("200\r\n" + std::string(512, 'x') + "\r\n");
    CHECK(client.ReadAll().find("HTTP/1.1 413") == 0);
  }
}

TEST_CASE("malformed and slow requests get an answer and a closed connection", "[http]") {
  HttpLimits limits;
  limits.header = absl::Milliseconds(100);
  limits.body = absl::Milliseconds(100);
  Server server(limits);
  for (const auto& [request, status] : std::vector<std::pair<std::string, std::string>>{
           {"nonsense\r\n\r\n", "HTTP/1.1 400"},
           {"GET / HTTP/1.1\r\nHost", "HTTP/1.1 408"},
           {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", "HTTP/1.1 408"},
           {"GET /" + std::string(100000, 'a') + " HTTP/1.1\r\n\r\n", "HTTP/1.1 431"}}) {
    INFO(request.substr(0, 40));
    Client client(server.server->port());
    client.Send(request);
    CHECK(client.ReadAll().find(status) == 0);
    CHECK(client.ended);
  }
}

TEST_CASE("a client that leaves is noticed while its answer is awaited", "[http]") {
  Server server;
  Client client(server.server->port());
  client.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  REQUIRE(server.arrived.Wait(absl::Seconds(5)));
  client.Close();
  CHECK(server.gone.Wait(absl::Seconds(5)));
  std::lock_guard<std::mutex> lock(server.mutex);
  CHECK_FALSE(server.waiting->Write("anybody?"));
}

TEST_CASE("answers that fit no socket's buffer arrive whole and in order", "[http]") {
  Server server;
  Client client(server.server->port());
  client.Send("GET /wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  REQUIRE(server.arrived.Wait(absl::Seconds(5)));
  std::string body;
  for (uint32_t i = 0; body.size() < (24u << 20); ++i) body += std::to_string(i) + " ";
  {
    std::lock_guard<std::mutex> lock(server.mutex);
    server.waiting->Send({200, {}, body});
  }
  const std::string answer = client.ReadAll();
  CHECK(client.ended);
  const size_t head = answer.find("\r\n\r\n");
  REQUIRE(head != std::string::npos);
  CHECK((answer.substr(head + 4) == body));
}

TEST_CASE("a reader that does not read loses its connection at the buffer's bound", "[http]") {
  HttpLimits limits;
  limits.stream_buffer_bytes = 1 << 20;
  Server server(limits);
  Client client(server.server->port());
  client.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  REQUIRE(server.arrived.Wait(absl::Seconds(5)));
  std::lock_guard<std::mutex> lock(server.mutex);
  server.waiting->StartStream({});
  const std::string block(64 << 10, 'x');
  bool refused = false;
  for (int i = 0; i < 10000 && !refused; ++i) refused = !server.waiting->Write(block);
  CHECK(refused);
  CHECK(server.gone.Wait(absl::Seconds(5)));
}

TEST_CASE("a port in use is a clear error", "[http]") {
  Server server;
  HttpServer::Options options;
  options.port = server.server->port();
  const auto second = HttpServer::Start(options, [](std::shared_ptr<HttpExchange>) {});
  REQUIRE_FALSE(second.ok());
  CHECK(second.status().code() == absl::StatusCode::kUnavailable);
  CHECK(second.status().message().find(std::to_string(options.port)) != absl::string_view::npos);
}

}  // namespace
}  // namespace baton::server

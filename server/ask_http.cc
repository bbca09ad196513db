// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/ask_http.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton::server {

int HttpGet(const std::string& host, uint16_t port, const std::string& path, std::string* body) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const std::string service = std::to_string(port);
  if (getaddrinfo(host.c_str(), service.c_str(), &hints, &found) != 0) return 0;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{0, 500000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  std::string answer;
  if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n");
    char buffer[4096];
    ssize_t size = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    while (size > 0 && (size = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
      answer.append(buffer, static_cast<size_t>(size));
    }
  }
  close(fd);
  freeaddrinfo(found);
  int status = 0;
  if (answer.size() < 12 || !absl::SimpleAtoi(answer.substr(9, 3), &status)) return 0;
  const size_t end = answer.find("\r\n\r\n");
  if (body != nullptr && end != std::string::npos) *body = answer.substr(end + 4);
  return status;
}

}  // namespace baton::server

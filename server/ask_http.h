// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One question to a role's admin port, for commands that look at a cluster from outside.
//
// Thread:  any; blocks for about a second at most.
#pragma once

#include <cstdint>
#include <string>

namespace baton::server {

// The status of GET `path` at host:port, and its body; 0 if there is no answer in a short time.
int HttpGet(const std::string& host, uint16_t port, const std::string& path, std::string* body);

}  // namespace baton::server

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/commands.h"

namespace baton::server {

std::vector<Command> AllCommands() {
  std::vector<Command> all;
  // One line per cmd_*.cc file.
  return all;
}

}  // namespace baton::server

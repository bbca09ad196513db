// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/commands.h"

#include <utility>

namespace baton::server {

std::vector<Command> AllCommands() {
  std::vector<Command> all;
  // One line per cmd_*.cc file.
  for (auto commands : {EngineCommands, BenchEngineCommands}) {
    for (Command& command : commands()) all.push_back(std::move(command));
  }
  return all;
}

}  // namespace baton::server

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/commands.h"

#include <utility>

namespace baton::server {

namespace {

void Append(std::vector<Command>& all, std::vector<Command> more) {
  for (Command& command : more) all.push_back(std::move(command));
}

}  // namespace

std::vector<Command> AllCommands() {
  std::vector<Command> all;
  // One line per cmd_*.cc file.
#ifdef BATON_UCX
  Append(all, UpCommands());
  Append(all, ServeCommands());
#endif
  Append(all, GenerateCommands());
  Append(all, DoctorCommands());
  Append(all, EngineCommands());
  Append(all, BenchEngineCommands());
#ifdef BATON_UCX
  Append(all, BenchKvCommands());
#endif
  Append(all, TextCommands());
  return all;
}

}  // namespace baton::server

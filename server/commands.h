// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Every `baton` command, in the order that --help shows.
#pragma once

#include <vector>

#include "server/command_line.h"

namespace baton::server {

std::vector<Command> AllCommands();

// Each cmd_*.cc's part of the list.
std::vector<Command> BenchKvCommands();  // where UCX is there

std::vector<Command> EngineCommands();       // score, perplexity
std::vector<Command> BenchEngineCommands();  // bench engine
std::vector<Command> TextCommands();         // tokenize, detokenize, render

}  // namespace baton::server

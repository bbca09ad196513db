// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Every `baton` command, in the order that --help shows.
#pragma once

#include <vector>

#include "server/command_line.h"

namespace baton::server {

std::vector<Command> AllCommands();

// Each cmd_*.cc's part of the list.
std::vector<Command> GenerateCommands();     // generate, chat
std::vector<Command> DoctorCommands();       // doctor
std::vector<Command> EngineCommands();       // score, perplexity
std::vector<Command> BenchEngineCommands();  // bench engine
std::vector<Command> TextCommands();         // tokenize, detokenize, render
// Where UCX is there:
std::vector<Command> UpCommands();       // up
std::vector<Command> ServeCommands();    // serve, check-config, print-config
std::vector<Command> BenchKvCommands();  // bench kv

}  // namespace baton::server

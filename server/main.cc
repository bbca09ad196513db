// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// `baton COMMAND …`: finds the command, parses its words, runs it.
//
// Commands live in server/cmd_*.cc; each file exports its Command values through
// commands.h.  Exit codes are command_line.h's.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "server/command_line.h"
#include "server/commands.h"

namespace baton::server {
namespace {

constexpr char kVersion[] = "0.1.0";

const std::vector<FlagSpec>& CommonFlags() {
  static const auto* flags = new std::vector<FlagSpec>{
      {"config", "FILE", "the cluster's YAML file"},
      {"set", "KEY.PATH=VALUE", "override one key of the file (repeatable)"},
      {"log-level", "LEVEL", "debug, info, warn or error (default info)"},
      {"log-format", "FORMAT", "text or json (default text)"},
      {"help", "", "show this text"},
  };
  return *flags;
}

void PrintUsage(std::FILE* out, const std::vector<Command>& commands) {
  std::fprintf(out, "usage: baton COMMAND [--flag value]…\n\ncommands:\n");
  for (const Command& command : commands) {
    std::fprintf(out, "  %-14s %s\n", command.name.c_str(), command.summary.c_str());
  }
  std::fprintf(out, "\nbaton COMMAND --help shows a command's flags.\n");
}

void PrintHelp(const Command& command) {
  std::printf("usage: baton %s [--flag value]…%s%s\n\n%s\n\nflags:\n", command.name.c_str(),
              command.words.empty() ? "" : " ", command.words.c_str(), command.summary.c_str());
  auto print = [](const FlagSpec& flag) {
    std::printf("  --%-24s %s\n",
                (flag.name + (flag.value_name.empty() ? "" : " " + flag.value_name)).c_str(),
                flag.help.c_str());
  };
  for (const FlagSpec& flag : command.flags) print(flag);
  for (const FlagSpec& flag : CommonFlags()) print(flag);
}

int Usage(const std::string& why) {
  std::fprintf(stderr, "baton: %s (see baton --help)\n", why.c_str());
  return kExitUsage;
}

int Main(const std::vector<std::string>& words) {
  const std::vector<Command> commands = AllCommands();
  if (words.empty()) return Usage("no command");
  if (words[0] == "--help" || words[0] == "help") {
    PrintUsage(stdout, commands);
    return kExitOk;
  }
  if (words[0] == "--version") {
    std::printf("baton %s\n", kVersion);
    return kExitOk;
  }
  // "bench engine" and the like are one command of two words.
  for (size_t used : {size_t{2}, size_t{1}}) {
    if (words.size() < used) continue;
    const std::string name = used == 2 ? words[0] + " " + words[1] : words[0];
    for (const Command& command : commands) {
      if (command.name != name) continue;
      std::vector<FlagSpec> flags = command.flags;
      flags.insert(flags.end(), CommonFlags().begin(), CommonFlags().end());
      auto line = CommandLine::Parse({words.begin() + used, words.end()}, flags);
      if (!line.ok()) return Usage(std::string(line.status().message()));
      if (line->Has("help")) {
        PrintHelp(command);
        return kExitOk;
      }
      if (!line->words().empty() && command.words.empty()) {
        return Usage("unexpected word '" + line->words()[0] + "'");
      }
      return command.run(*line);
    }
  }
  return Usage("unknown command '" + words[0] + "'");
}

}  // namespace
}  // namespace baton::server

int main(int argc, char** argv) {
  return baton::server::Main(std::vector<std::string>(argv + 1, argv + argc));
}

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Every test program's main(): goes to the source root, then runs Catch2.
//
// Tests name files relative to the root (BATON_SOURCE_DIR is "."), so that a compiled test
// does not depend on where the tree lies and a compiler cache serves every clone.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>

int main(int argc, char** argv) {
  std::error_code error;
  std::filesystem::current_path(BATON_ROOT, error);
  if (error) {
    std::fprintf(stderr, "cannot enter %s: %s\n", BATON_ROOT, error.message().c_str());
    return 1;
  }
  return Catch::Session().run(argc, argv);
}

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as a configuration: a value or an error, and a value prints to what reads back.
// DEPS: config
#include "base/ensure.h"
#include "config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = baton::config::Parse(text, "fuzz");
  if (config.ok()) {
    ENSURE(baton::config::Parse(baton::config::Print(*config), "printed").ok());
  }
  return 0;
}

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Runs a fuzz target over files (or the files of folders), and over truncations and bit flips
// of each: what a build without libFuzzer can do.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void Run(const std::vector<uint8_t>& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

void RunAround(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  Run(bytes);
  const size_t step = bytes.size() / 64 + 1;
  for (size_t i = 0; i < bytes.size(); i += step) {
    Run({bytes.begin(), bytes.begin() + i});
    std::vector<uint8_t> flipped = bytes;
    flipped[i] ^= static_cast<uint8_t>(1u << (i % 8));
    Run(flipped);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Run({});
  size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      RunAround(argv[i]);
      ++files;
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      RunAround(entry.path());
      ++files;
    }
  }
  std::printf("replayed %zu files\n", files);
  return 0;
}

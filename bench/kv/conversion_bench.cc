// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How fast a writer converts: 1,024 tokens (64 blocks of 16) of every layer, layer by layer, into
// a staging piece of 512 KiB, beside memcpy of the same blocks.
//
// Napkin: bytes are read from memory once and written to a near cache, so a copy between layouts
// may be as fast as memcpy, and a conversion by AVX2 (about half a cycle an element) a third of it.
// Not measured: the way of what was converted to the owner.
//
//   conversion_bench [REPS]     default 9; a JSON line per conversion, best and median
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/time/clock.h"
#include "base/random.h"
#include "kv_transfer/conversion.h"
#include "kv_transfer/staging.h"

namespace baton::kv {
namespace {

constexpr uint32_t kBlocks = 64;

struct Shape {
  const char* name;
  uint32_t layers, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {{"smollm2", 30, 3, 64}, {"llama8b", 32, 8, 128}};

Layout LayoutOf(const Shape& shape, ElementType type) {
  Layout layout;
  layout.layers = shape.layers;
  layout.kv_heads = shape.kv_heads;
  layout.head_dim = shape.head_dim;
  layout.block_tokens = 16;
  layout.element_type = type;
  layout.scales = ScalesOf(type);
  layout.blocks = kBlocks;
  return layout;
}

// Numbers, whatever the type: of bf16, f16 and f32 no exponent is all ones.
std::vector<uint8_t> Numbers(const Layout& layout) {
  std::vector<uint8_t> bytes(layout.pool_bytes());
  Random random(3);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const uint64_t word = random.Next() & 0xbfffbfffbfffbfffu;
    std::memcpy(bytes.data() + at, &word, 8);
  }
  return bytes;
}

// Seconds for all layers.  Null: memcpy.
double Run(const Layout& from, const std::vector<uint8_t>& pool, const ConversionPlan* plan,
           uint64_t target_block_bytes, std::vector<uint8_t>& piece) {
  const uint64_t at_once = std::min<uint64_t>(kBlocks, piece.size() / target_block_bytes);
  const absl::Time begin = absl::Now();
  for (uint32_t layer = 0; layer < from.layers; ++layer) {
    for (uint64_t first = 0; first < kBlocks; first += at_once) {
      std::vector<const uint8_t*> blocks;
      for (uint64_t i = first; i < std::min<uint64_t>(first + at_once, kBlocks); ++i) {
        // Scattered, as a pool's blocks are.
        blocks.push_back(pool.data() + from.offset(layer, static_cast<uint32_t>(37 * i % kBlocks)));
      }
      const auto target = absl::MakeSpan(piece).first(blocks.size() * target_block_bytes);
      if (plan != nullptr) {
        Convert(*plan, blocks, target);
        continue;
      }
      for (size_t i = 0; i < blocks.size(); ++i) {
        std::memcpy(target.data() + i * target_block_bytes, blocks[i], target_block_bytes);
      }
    }
  }
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

void Measure(const Shape& shape, const char* what, const Layout& from, const Layout& to, int reps) {
  const std::vector<uint8_t> pool = Numbers(from);
  std::vector<uint8_t> piece(StagingArea::PieceBytes({}, from));
  const auto planned = PlanConversion(from, to);
  const auto* plan = std::get_if<ConversionPlan>(&planned);
  std::vector<double> seconds;
  for (int i = 0; i < reps; ++i) seconds.push_back(Run(from, pool, plan, to.block_bytes(), piece));
  std::sort(seconds.begin(), seconds.end());
  const auto rate = [&](double s) { return static_cast<double>(from.pool_bytes()) / s / 1e9; };
  uint64_t hash = 0;  // of what was made: nobody may leave it out
  for (const uint8_t byte : piece) hash = hash * 31 + byte;
  std::printf("{\"shape\": \"%s\", \"what\": \"%s\", \"runs\": %zu, \"source_bytes\": %" PRIu64
              ", \"target_bytes\": %" PRIu64
              ", \"source_gb_s_best\": %.2f, \"source_gb_s_median\": %.2f, \"hash\": \"%016" PRIx64
              "\"}\n",
              shape.name, what, plan == nullptr ? 0 : plan->bytes.size() + plan->rows.size(),
              from.pool_bytes(), to.pool_bytes(), rate(seconds.front()),
              rate(seconds[seconds.size() / 2]), hash);
}

int Main(int reps) {
  using enum ElementType;
  for (const Shape& shape : kShapes) {
    const Layout bf16 = LayoutOf(shape, kBf16);
    Measure(shape, "memcpy", bf16, bf16, reps);
    Layout other = bf16;
    other.row_order = RowOrder::kTokenMajor;
    Measure(shape, "head-major to token-major", bf16, other, reps);
    Measure(shape, "token-major to head-major", other, bf16, reps);
    constexpr std::pair<ElementType, ElementType> kPairs[] = {
        {kBf16, kF16},  {kF16, kBf16}, {kBf16, kF32},  {kF32, kBf16},
        {kBf16, kInt8}, {kF16, kInt8}, {kInt8, kBf16}, {kInt8, kF16}};
    for (const auto& [from, to] : kPairs) {
      const std::string what = std::string(NameOf(from)) + " to " + NameOf(to);
      Measure(shape, what.c_str(), LayoutOf(shape, from), LayoutOf(shape, to), reps);
    }
  }
  return 0;
}

}  // namespace
}  // namespace baton::kv

int main(int argc, char** argv) { return baton::kv::Main(argc > 1 ? std::atoi(argv[1]) : 9); }

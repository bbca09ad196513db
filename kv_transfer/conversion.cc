// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/conversion.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/ensure.h"
#include "kv_transfer/convert_rows.h"

namespace baton::kv {
namespace {

constexpr uint64_t kGroupRowsMax = 1u << 18;  // bounds a plan: 7 MB if no two rows go together

// ── where a row is ────────────────────────────────────────────────────────────────────

// A row by its place on the three axes; the token counts within a block.
enum Axis : size_t { kWhich = 0, kHead = 1, kToken = 2 };
using Place = std::array<uint32_t, 3>;

// The axes from the outermost to the innermost.
std::array<Axis, 3> AxesOf(const Layout& layout) {
  const bool heads_first = layout.row_order == RowOrder::kHeadMajor;
  const Axis first = heads_first ? kHead : kToken, second = heads_first ? kToken : kHead;
  if (layout.kv_order == KvOrder::kOuter) return {kWhich, first, second};
  return {first, second, kWhich};
}

struct RowAt {
  uint32_t offset = 0, scale = 0;
};

class Rows {
 public:
  explicit Rows(const Layout& layout)
      : axes_(AxesOf(layout)),
        row_bytes_(layout.row_bytes()),
        scale_bytes_(layout.scale_bytes()),
        sizes_{2, layout.kv_heads, layout.block_tokens} {}

  uint32_t size(size_t depth) const { return sizes_[axes_[depth]]; }
  Place At(uint32_t outer, uint32_t middle, uint32_t inner) const {
    Place place{};
    place[axes_[0]] = outer;
    place[axes_[1]] = middle;
    place[axes_[2]] = inner;
    return place;
  }
  RowAt Find(const Place& place) const {
    const uint64_t in_line = size(2);  // rows that have their scales behind them
    const uint64_t line = uint64_t{place[axes_[0]]} * size(1) + place[axes_[1]];
    const uint64_t begin = line * in_line * (row_bytes_ + scale_bytes_);
    const uint64_t at = place[axes_[2]];
    return {static_cast<uint32_t>(begin + at * row_bytes_),
            static_cast<uint32_t>(begin + in_line * row_bytes_ + at * scale_bytes_)};
  }

 private:
  const std::array<Axis, 3> axes_;
  const uint64_t row_bytes_, scale_bytes_;
  const std::array<uint32_t, 3> sizes_;
};

// ── the intersection ──────────────────────────────────────────────────────────────────

// Layers or heads that both sides have, and where they begin on either.
struct Common {
  uint32_t count = 0, source = 0, target = 0;
};
Common Intersect(uint32_t source_before, uint32_t source_count, uint32_t target_before,
                 uint32_t target_count) {
  const uint32_t begin = std::max(source_before, target_before);
  const uint32_t end = std::min(source_before + source_count, target_before + target_count);
  if (begin >= end) return {};
  return {end - begin, begin - source_before, begin - target_before};
}

// A row of the target that the source has too.
struct Shared {
  uint32_t source_block = 0, target_block = 0;
  RowAt source, target;
};

class Planner {
 public:
  Planner(const Layout& source, const Layout& target, const Common& heads, ConversionPlan& plan)
      : source_(source),
        target_(target),
        source_rows_(source),
        target_rows_(target),
        heads_(heads),
        plan_(plan) {}

  // Line by line, as the target has them: it is written from front to back.
  void Run() {
    for (uint32_t block = 0; block < plan_.target_blocks; ++block) {
      for (uint32_t outer = 0; outer < target_rows_.size(0); ++outer) {
        for (uint32_t middle = 0; middle < target_rows_.size(1); ++middle) {
          AddLine(block, outer, middle);
        }
      }
    }
  }

 private:
  void AddLine(uint32_t block, uint32_t outer, uint32_t middle) {
    line_.clear();
    for (uint32_t inner = 0; inner < target_rows_.size(2); ++inner) {
      Place place = target_rows_.At(outer, middle, inner);
      if (place[kHead] < heads_.target || place[kHead] - heads_.target >= heads_.count) continue;
      Shared shared{.target_block = block, .target = target_rows_.Find(place)};
      const uint32_t token = block * target_.block_tokens + place[kToken];
      place[kHead] += heads_.source - heads_.target;
      place[kToken] = token % source_.block_tokens;
      shared.source_block = token / source_.block_tokens;
      shared.source = source_rows_.Find(place);
      line_.push_back(shared);
    }
    if (plan_.numeric()) {
      for (const Shared& row : line_) AddRow(row);
      return;
    }
    for (const Shared& row : line_) {
      AddBytes(row, row.source.offset, row.target.offset, source_.row_bytes());
    }
    if (target_.scale_bytes() == 0) return;
    for (const Shared& row : line_) {
      AddBytes(row, row.source.scale, row.target.scale, target_.scale_bytes());
    }
  }

  void AddBytes(const Shared& row, uint32_t source, uint32_t target, uint64_t size) {
    const auto bytes = static_cast<uint32_t>(size);
    if (!plan_.bytes.empty()) {
      ByteRun& last = plan_.bytes.back();
      if (last.source_block == row.source_block && last.target_block == row.target_block &&
          last.source_offset + last.size_bytes == source &&
          last.target_offset + last.size_bytes == target) {
        last.size_bytes += bytes;
        return;
      }
    }
    plan_.bytes.push_back({row.source_block, row.target_block, source, target, bytes});
  }

  // Rows go on where the last run ends, on both sides, and so do their scales.
  void AddRow(const Shared& row) {
    if (!plan_.rows.empty()) {
      RowRun& last = plan_.rows.back();
      const auto follows = [&](const Layout& layout, uint32_t offset, uint32_t scales,
                               const RowAt& next) {
        return offset + last.rows * layout.row_bytes() == next.offset &&
               (layout.scale_bytes() == 0 ||
                scales + uint64_t{last.rows} * layout.scale_bytes() == next.scale);
      };
      if (last.source_block == row.source_block && last.target_block == row.target_block &&
          follows(source_, last.source_offset, last.source_scales, row.source) &&
          follows(target_, last.target_offset, last.target_scales, row.target)) {
        ++last.rows;
        return;
      }
    }
    plan_.rows.push_back({row.source_block, row.target_block, row.source.offset, row.target.offset,
                          row.source.scale, row.target.scale, 1});
  }

  const Layout& source_;
  const Layout& target_;
  const Rows source_rows_, target_rows_;
  const Common heads_;
  ConversionPlan& plan_;
  std::vector<Shared> line_;
};

Refusal Differ(const char* field, uint64_t source, uint64_t target, const char* why) {
  return {field, absl::StrCat(field, " cannot be converted: ", source, " to ", target, ": ", why)};
}

uint64_t AllLayers(const Layout& layout) {
  return uint64_t{layout.layers_before} + layout.layers + layout.layers_after;
}
uint64_t AllHeads(const Layout& layout) {
  return uint64_t{layout.heads_before} + layout.kv_heads + layout.heads_after;
}

// What no plan can change.
std::optional<Refusal> CheckConvertible(const Layout& source, const Layout& target) {
  for (const Layout* layout : {&source, &target}) {
    if (auto bad = CheckLayout(*layout)) return bad;
  }
  if (AllLayers(source) != AllLayers(target)) {
    return Differ("layout.layers", AllLayers(source), AllLayers(target), "of different models");
  }
  if (AllHeads(source) != AllHeads(target)) {
    return Differ("layout.kv_heads", AllHeads(source), AllHeads(target), "of different models");
  }
  if (source.head_dim != target.head_dim) {
    return Differ("layout.head_dim", source.head_dim, target.head_dim, "of different models");
  }
  const auto [small, large] = std::minmax(source.block_tokens, target.block_tokens);
  if (large % small != 0) {
    return Differ("layout.block_tokens", source.block_tokens, target.block_tokens,
                  "neither is a multiple of the other");
  }
  if (2 * uint64_t{target.kv_heads} * large > kGroupRowsMax) {
    return Differ("layout.block_tokens", source.block_tokens, target.block_tokens,
                  "too many rows to plan for");
  }
  return std::nullopt;
}

}  // namespace

std::variant<Direct, ConversionPlan, Refusal> PlanConversion(const Layout& source,
                                                             const Layout& target) {
  if (auto refusal = CheckConvertible(source, target)) return *std::move(refusal);
  if (!CompareLayouts(source, target)) return Direct{};
  const Common layers =
      Intersect(source.layers_before, source.layers, target.layers_before, target.layers);
  if (layers.count == 0) {
    return Differ("layout.layers_before", source.layers_before, target.layers_before,
                  "no layer is in both");
  }
  const Common heads =
      Intersect(source.heads_before, source.kv_heads, target.heads_before, target.kv_heads);
  if (heads.count == 0) {
    return Differ("layout.heads_before", source.heads_before, target.heads_before,
                  "no head is in both");
  }
  ConversionPlan plan;
  plan.source_type = source.element_type;
  plan.target_type = target.element_type;
  plan.head_dim = source.head_dim;
  plan.source_blocks = std::max<uint32_t>(1, target.block_tokens / source.block_tokens);
  plan.target_blocks = std::max<uint32_t>(1, source.block_tokens / target.block_tokens);
  plan.source_block_bytes = source.block_bytes();
  plan.target_block_bytes = target.block_bytes();
  plan.layers = layers.count;
  plan.source_layer = layers.source;
  plan.target_layer = layers.target;
  plan.whole = heads.count == target.kv_heads;
  Planner(source, target, heads, plan).Run();
  return plan;
}

void Convert(const ConversionPlan& plan, absl::Span<const uint8_t* const> sources,
             absl::Span<uint8_t> target) {
  const uint64_t targets = target.size() / plan.target_block_bytes;
  ENSURE(target.size() == targets * plan.target_block_bytes);
  ENSURE(targets <= plan.TargetBlocks(sources.size()));
  const RowConverter converter(plan.source_type, plan.target_type, plan.head_dim);
  uint64_t source = 0, written = 0;  // of the group
  for (; written < targets; source += plan.source_blocks, written += plan.target_blocks) {
    // Both ends of a run that both sides have; null: one of them ends before.
    const auto from = [&](const auto& run) {
      const bool there =
          source + run.source_block < sources.size() && written + run.target_block < targets;
      return there ? sources[source + run.source_block] : nullptr;
    };
    const auto to = [&](const auto& run) {
      return target.data() + (written + run.target_block) * plan.target_block_bytes;
    };
    for (const ByteRun& run : plan.bytes) {
      const uint8_t* block = from(run);
      if (block == nullptr) continue;
      std::memcpy(to(run) + run.target_offset, block + run.source_offset, run.size_bytes);
    }
    for (const RowRun& run : plan.rows) {
      const uint8_t* block = from(run);
      if (block == nullptr) continue;
      converter.Run(block + run.source_offset, block + run.source_scales,
                    to(run) + run.target_offset, to(run) + run.target_scales, run.rows);
    }
  }
}

std::string DescribeConversion(const Layout& source, const Layout& target) {
  std::vector<std::string> changes;
  if (source.element_type != target.element_type) {
    changes.push_back(
        absl::StrCat(NameOf(source.element_type), " to ", NameOf(target.element_type)));
  }
  if (source.kv_order != target.kv_order || source.row_order != target.row_order) {
    changes.push_back("other row order");
  }
  if (source.block_tokens != target.block_tokens) {
    changes.push_back(absl::StrCat("blocks of ", source.block_tokens, " to ", target.block_tokens));
  }
  return absl::StrJoin(changes, ", ");
}

}  // namespace baton::kv

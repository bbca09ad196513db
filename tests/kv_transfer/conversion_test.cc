// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Plans between layouts, against the definition (naive_conversion.h), and what they refuse.
#include "kv_transfer/conversion.h"

#include <catch2/catch.hpp>
#include <limits>

#include "base/random.h"
#include "kv_transfer/convert_rows.h"
#include "tests/kv_transfer/naive_conversion.h"

namespace baton::kv {
namespace {

constexpr ElementType kTypes[] = {ElementType::kF32, ElementType::kF16, ElementType::kBf16,
                                  ElementType::kInt8};

Layout Typed(Layout layout, ElementType type) {
  layout.element_type = type;
  layout.scales = ScalesOf(type);
  return layout;
}

const Layout kPlain{.layers = 4, .kv_heads = 4, .head_dim = 8, .block_tokens = 16, .blocks = 9};

// `count` of `all`, in the place of one of the shards that divide them.
void TakePart(Random& random, uint32_t all, uint32_t& here, uint32_t& before, uint32_t& after) {
  here = all >> random.Below(3);
  before = static_cast<uint32_t>(random.Below(all / here)) * here;
  after = all - before - here;
}

Layout RandomLayout(Random& random, uint32_t head_dim) {
  Layout layout = Typed(kPlain, kTypes[random.Below(4)]);
  TakePart(random, 4, layout.kv_heads, layout.heads_before, layout.heads_after);
  TakePart(random, 4, layout.layers, layout.layers_before, layout.layers_after);
  layout.head_dim = head_dim;
  layout.block_tokens = 16u << random.Below(3);
  layout.kv_order = random.Chance(0.5) ? KvOrder::kInner : KvOrder::kOuter;
  layout.row_order = random.Chance(0.5) ? RowOrder::kTokenMajor : RowOrder::kHeadMajor;
  return layout;
}

// A finite float of any size, now and then one at the edge of what the types hold.
float RandomFloat(Random& random) {
  constexpr float kEdges[] = {0.0f,      -0.0f,     65504.0f,   65520.0f,   -1e30f,
                              3.3e38f,   0x1p-24f,  0x1.8p-25f, 0x1p-14f,   0x1p-126f,
                              0x1p-149f, 0x1.fep0f, 0x1.01p0f,  0x1.ffep15f};
  if (random.Chance(0.1)) return kEdges[random.Below(std::size(kEdges))];
  const auto exponent = static_cast<int>(random.Between(0, 40)) - 30;
  return std::ldexp(static_cast<float>(random.Unit()) - 0.5f, exponent);
}

// Blocks of finite values.
std::vector<uint8_t> RandomBlocks(Random& random, const Layout& layout, size_t count) {
  std::vector<uint8_t> bytes(count * layout.block_bytes());
  for (size_t block = 0; block < count; ++block) {
    uint8_t* at = bytes.data() + block * layout.block_bytes();
    for (uint32_t row = 0; row < layout.block_rows(); ++row) {
      const uint32_t which = row % 2, head = row / 2 % layout.kv_heads;
      const uint32_t token = row / 2 / layout.kv_heads;
      std::vector<float> values(layout.head_dim);
      for (float& value : values) value = RandomFloat(random);
      for (uint32_t dim = 0; dim < layout.head_dim; ++dim) {
        naive::Write(layout, at, naive::Find(layout, which, head, token, dim), values[dim], values);
      }
    }
  }
  return bytes;
}

std::vector<const uint8_t*> BlocksOf(const Layout& layout, const std::vector<uint8_t>& bytes) {
  std::vector<const uint8_t*> blocks;
  for (uint64_t at = 0; at < bytes.size(); at += layout.block_bytes()) {
    blocks.push_back(bytes.data() + at);
  }
  return blocks;
}

// By the plan, into memory that had another content.
std::vector<uint8_t> Run(const Layout& source, const Layout& target,
                         const std::vector<uint8_t>& bytes, std::vector<uint8_t> before) {
  const auto planned = PlanConversion(source, target);
  REQUIRE(std::holds_alternative<ConversionPlan>(planned));
  Convert(std::get<ConversionPlan>(planned), BlocksOf(source, bytes), absl::MakeSpan(before));
  return before;
}
std::vector<uint8_t> Filled(const Layout& source, const Layout& target, size_t blocks) {
  const uint64_t tokens = blocks * source.block_tokens;
  const uint64_t count = (tokens + target.block_tokens - 1) / target.block_tokens;
  return std::vector<uint8_t>(count * target.block_bytes(), 0xee);
}

std::string FieldOf(const Layout& source, const Layout& target) {
  const auto planned = PlanConversion(source, target);
  const auto* refusal = std::get_if<Refusal>(&planned);
  if (refusal == nullptr) return "";
  CHECK(refusal->message.find(refusal->field) != std::string::npos);
  return refusal->field;
}

TEST_CASE("any two layouts: the bytes are those of the definition") {
  Random random(11);
  int converted = 0, direct = 0, apart = 0, numeric = 0;
  for (int i = 0; i < 1500; ++i) {
    constexpr uint32_t kDims[] = {1, 3, 8, 40};
    const uint32_t head_dim = kDims[random.Below(4)];
    const Layout source = RandomLayout(random, head_dim), target = RandomLayout(random, head_dim);
    const auto planned = PlanConversion(source, target);
    direct += std::holds_alternative<Direct>(planned);
    if (const auto* refusal = std::get_if<Refusal>(&planned)) {
      CHECK((refusal->field == "layout.layers_before" || refusal->field == "layout.heads_before"));
      ++apart;
      continue;
    }
    if (std::holds_alternative<Direct>(planned)) continue;
    const size_t count = random.Between(1, 6);
    const std::vector<uint8_t> bytes = RandomBlocks(random, source, count);
    const std::vector<uint8_t> before = Filled(source, target, count);
    const std::vector<uint8_t> expected =
        naive::Converted(source, target, BlocksOf(source, bytes), before);
    INFO(i << ": " << DescribeConversion(source, target));
    REQUIRE(Run(source, target, bytes, before) == expected);
    ++converted;
    numeric += std::get<ConversionPlan>(planned).numeric();
  }
  INFO(converted << " converted, " << direct << " direct, " << apart << " apart");
  CHECK(converted > 400);
  CHECK(numeric > 200);
  CHECK(apart > 100);
}

TEST_CASE("there and back is where it was, wherever nothing is lost") {
  Random random(12);
  const auto wider = [](ElementType type) {
    return type == ElementType::kF16 || type == ElementType::kBf16;
  };
  int done = 0;
  for (int i = 0; i < 600; ++i) {
    Layout source = RandomLayout(random, 8), target = RandomLayout(random, 8);
    target.kv_heads = source.kv_heads;
    target.heads_before = source.heads_before;
    target.heads_after = source.heads_after;
    target.layers = source.layers;
    target.layers_before = source.layers_before;
    target.layers_after = source.layers_after;
    const bool same = random.Chance(0.5) || !wider(source.element_type);
    target = Typed(target, same ? source.element_type : ElementType::kF32);
    if (!CompareLayouts(source, target)) continue;
    // Whole groups, so that every byte has its place on both sides.
    const size_t count = 4;
    const std::vector<uint8_t> bytes = RandomBlocks(random, source, count);
    const std::vector<uint8_t> there = Run(source, target, bytes, Filled(source, target, count));
    std::vector<uint8_t> back(bytes.size(), 0x55);
    REQUIRE(Run(target, source, there, back) == bytes);
    ++done;
  }
  CHECK(done > 300);
}

TEST_CASE("a plan is the intersection as runs, no shorter and no longer") {
  const auto runs = [](const Layout& source, const Layout& target) {
    const auto planned = PlanConversion(source, target);
    REQUIRE(std::holds_alternative<ConversionPlan>(planned));
    const auto& plan = std::get<ConversionPlan>(planned);
    return std::pair(plan.bytes.size(), plan.rows.size());
  };
  Layout half = kPlain;
  half.kv_heads = half.heads_after = 2;
  CHECK(runs(kPlain, half) == std::pair<size_t, size_t>(2, 0));  // K's heads, V's heads
  CHECK(runs(half, kPlain) == std::pair<size_t, size_t>(2, 0));
  Layout large = kPlain;
  large.block_tokens = 64;
  CHECK(runs(kPlain, large) == std::pair<size_t, size_t>(4 * 2 * 4, 0));  // block, K or V, head
  Layout tokens = kPlain;
  tokens.row_order = RowOrder::kTokenMajor;
  // Each row, but that V's first follows K's last on both sides.
  CHECK(runs(kPlain, tokens) == std::pair<size_t, size_t>(2 * 4 * 16 - 1, 0));
  CHECK(runs(kPlain, Typed(kPlain, ElementType::kF16)) == std::pair<size_t, size_t>(0, 1));
  CHECK(runs(kPlain, Typed(kPlain, ElementType::kInt8)) == std::pair<size_t, size_t>(0, 2 * 4));
  Layout later = half;
  later.layers = 2;
  later.layers_before = later.layers_after = 1;
  const auto plan = std::get<ConversionPlan>(PlanConversion(kPlain, later));
  CHECK(plan.layers == 2);
  CHECK(plan.source_layer == 1);
  CHECK(plan.target_layer == 0);
  CHECK(plan.whole);
  CHECK(!std::get<ConversionPlan>(PlanConversion(half, kPlain)).whole);
}

TEST_CASE("shards of heads put together give the whole, and the whole gives each its part") {
  Random random(13);
  for (const uint32_t shards : {2u, 4u}) {
    for (const ElementType type : kTypes) {
      const Layout whole = Typed(kPlain, type);
      const std::vector<uint8_t> bytes = RandomBlocks(random, whole, 2);
      std::vector<uint8_t> again(bytes.size(), 0x77);
      for (uint32_t i = 0; i < shards; ++i) {
        Layout shard = whole;
        shard.kv_heads = 4 / shards;
        shard.heads_before = i * shard.kv_heads;
        shard.heads_after = 4 - shard.heads_before - shard.kv_heads;
        const auto part = Run(whole, shard, bytes, Filled(whole, shard, 2));
        again = Run(shard, whole, part, again);
      }
      CHECK(again == bytes);
    }
  }
}

TEST_CASE("what no plan can change is refused by its field") {
  CHECK(std::holds_alternative<Direct>(PlanConversion(kPlain, kPlain)));
  Layout more_blocks = kPlain;
  more_blocks.blocks = 1000;
  CHECK(std::holds_alternative<Direct>(PlanConversion(kPlain, more_blocks)));
  const auto field = [](auto change) {
    Layout other = kPlain;
    change(other);
    const std::string there = FieldOf(kPlain, other);
    CHECK(FieldOf(other, kPlain) == there);
    return there;
  };
  CHECK(field([](Layout& l) { l.version = 2; }) == "layout.version");
  CHECK(field([](Layout& l) { l.kind = LayoutKind::kMla; }) == "layout.kind");
  CHECK(field([](Layout& l) { l.kind = LayoutKind::kState; }) == "layout.kind");
  CHECK(field([](Layout& l) { l.layers = 0; }) == "layout.layers");
  CHECK(field([](Layout& l) { l.layers = 5; }) == "layout.layers");
  CHECK(field([](Layout& l) { l.layers_before = 1u << 31; }) == "layout.layers");
  CHECK(field([](Layout& l) { l.kv_heads = 3; }) == "layout.kv_heads");
  CHECK(field([](Layout& l) { l.heads_after = 1; }) == "layout.kv_heads");
  CHECK(field([](Layout& l) { l.head_dim = 16; }) == "layout.head_dim");
  CHECK(field([](Layout& l) { l.head_dim = 1025; }) == "layout.head_dim");
  CHECK(field([](Layout& l) { l.block_tokens = 24; }) == "layout.block_tokens");
  CHECK(field([](Layout& l) { l.block_tokens = 0; }) == "layout.block_tokens");
  CHECK(field([](Layout& l) { l.element_type = ElementType(9); }) == "layout.element_type");
  CHECK(field([](Layout& l) { l.scales = Scales::kPerRow; }) == "layout.scales");
  CHECK(field([](Layout& l) { l.kv_order = KvOrder(2); }) == "layout.kv_order");
  CHECK(field([](Layout& l) { l.row_order = RowOrder(7); }) == "layout.row_order");
  CHECK(field([](Layout& l) { l.blocks = 0; }) == "layout.blocks");
  Layout first = kPlain, last = kPlain;
  first.layers = first.layers_after = last.layers = last.layers_before = 2;
  CHECK(FieldOf(first, last) == "layout.layers_before");
  first = last = kPlain;
  first.kv_heads = first.heads_after = last.kv_heads = last.heads_before = 2;
  CHECK(FieldOf(first, last) == "layout.heads_before");
  CHECK(CheckLayout([] {
          Layout mla = kPlain;
          mla.kind = LayoutKind::kMla;
          return mla;
        }())
            ->message.find("mla") != std::string::npos);
}

TEST_CASE("no descriptor crashes the planner, or makes it plan for ever") {
  Random random(14);
  int sound = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto number = [&]() -> uint32_t {
      if (random.Chance(0.9)) return static_cast<uint32_t>(random.Between(1, 64));
      const auto any = static_cast<uint32_t>(random.Next());
      return any >> random.Below(32);
    };
    Layout layouts[2];
    for (Layout& layout : layouts) {
      for (uint32_t* field : {&layout.layers, &layout.kv_heads, &layout.block_tokens,
                              &layout.head_dim, &layout.blocks}) {
        *field = number();
      }
      if (random.Chance(0.1)) layout.heads_before = number();
      if (random.Chance(0.1)) layout.layers_after = number();
      layout = Typed(layout, static_cast<ElementType>(random.Below(5)));
      layout.kv_order = static_cast<KvOrder>(random.Below(3) % 2);
      layout.row_order = static_cast<RowOrder>(random.Below(3) % 2);
      if (random.Chance(0.02)) layout.kind = static_cast<LayoutKind>(random.Below(9));
    }
    if (random.Chance(0.7)) {
      layouts[1] = Typed(layouts[0], layouts[1].element_type);
      layouts[1].row_order = RowOrder::kTokenMajor;
    }
    const auto planned = PlanConversion(layouts[0], layouts[1]);
    const auto* plan = std::get_if<ConversionPlan>(&planned);
    if (plan == nullptr) continue;
    ++sound;
    CHECK(plan->bytes.size() + plan->rows.size() <= (1u << 19));
    for (const ByteRun& run : plan->bytes) {
      REQUIRE(run.source_offset + uint64_t{run.size_bytes} <= plan->source_block_bytes);
      REQUIRE(run.target_offset + uint64_t{run.size_bytes} <= plan->target_block_bytes);
    }
  }
  CHECK(sound > 2000);
}

TEST_CASE("whatever the bytes, wide and plain instructions convert them alike") {
  Random random(15);
  for (const ElementType source : kTypes) {
    for (const ElementType target : kTypes) {
      if (source == target) continue;
      for (const uint32_t head_dim : {1u, 7u, 64u, 128u, 1000u}) {
        const uint32_t rows = 5;
        std::vector<uint8_t> from(size_t{rows} * head_dim * 4 + 1), scales(rows * 4 + 1);
        for (uint8_t& byte : from) byte = static_cast<uint8_t>(random.Next());
        for (uint8_t& byte : scales) byte = static_cast<uint8_t>(random.Next());
        std::vector<uint8_t> to[2], to_scales[2];
        for (int i = 0; i < 2; ++i) {
          to[i].assign(size_t{rows} * head_dim * 4 + 1, 0x33);
          to_scales[i].assign(rows * 4 + 1, 0x33);
        }
        // One byte in: nothing is aligned.
        const RowConverter converter(source, target, head_dim);
        converter.Run(from.data() + 1, scales.data() + 1, to[0].data() + 1, to_scales[0].data() + 1,
                      rows);
        ConvertRowsPortably(converter, from.data() + 1, scales.data() + 1, to[1].data() + 1,
                            to_scales[1].data() + 1, rows);
        INFO(NameOf(source) << " to " << NameOf(target) << ", " << head_dim);
        CHECK(to[0] == to[1]);
        CHECK(to_scales[0] == to_scales[1]);
      }
    }
  }
}

TEST_CASE("what the new type cannot hold becomes its largest, a NaN too") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> row = {inf, -inf, nan, 1e30f, -1.5f, 0.0f, 65520.0f, -70000.0f};
  const auto store = [&](ElementType type, std::vector<float> values) {
    std::vector<uint8_t> to(values.size() * 4), scale(4);
    RowConverter(ElementType::kF32, type, static_cast<uint32_t>(values.size()))
        .Run(reinterpret_cast<const uint8_t*>(values.data()), nullptr, to.data(), scale.data(), 1);
    std::vector<float> back(values.size());
    RowConverter(type, ElementType::kF32, static_cast<uint32_t>(values.size()))
        .Run(to.data(), scale.data(), reinterpret_cast<uint8_t*>(back.data()), nullptr, 1);
    return back;
  };
  const float most = 65504.0f, wide = 0x1.fep127f;
  CHECK(store(ElementType::kF16, row) ==
        std::vector<float>{most, -most, most, most, -1.5f, 0.0f, most, -most});
  const std::vector<float> brains = store(ElementType::kBf16, row);
  CHECK(brains[0] == wide);
  CHECK(brains[1] == -wide);
  CHECK(brains[2] == wide);
  CHECK(brains[4] == -1.5f);
  const std::vector<float> bytes = store(ElementType::kInt8, {nan, 127.0f, -63.4f, 0.5f, 1.5f});
  CHECK(bytes == std::vector<float>{127.0f, 127.0f, -63.0f, 0.0f, 2.0f});
  CHECK(store(ElementType::kInt8, {1e-31f, 0.0f}) == std::vector<float>{0.0f, 0.0f});
}

}  // namespace
}  // namespace baton::kv

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Layout descriptors: what is sound, what differs, and their bytes in a Hello.
#include "kv_transfer/layout.h"

#include "absl/strings/str_cat.h"

namespace baton::kv {
namespace {

// Far above any model; they keep every size within 64 bits and a plan within some megabytes.
constexpr uint64_t kLayersMax = 4096, kHeadsMax = 4096, kHeadDimMax = 1024;
constexpr uint64_t kBlockRowsMax = 1u << 16;
constexpr uint64_t kPoolBytesMax = uint64_t{1} << 56;
constexpr uint16_t kGqaBytes = 9 * 4 + 4;

std::string KindName(LayoutKind kind) {
  switch (kind) {
    case LayoutKind::kGqa:
      return "gqa";
    case LayoutKind::kMla:
      return "mla";
    case LayoutKind::kState:
      return "state";
  }
  return absl::StrCat("unknown (", static_cast<int>(kind), ")");
}

std::optional<Refusal> Bad(const char* field, const std::string& what) {
  return Refusal{field, absl::StrCat(field, ": ", what)};
}

// `here`, and what other shards hold on either side, of a model's `most` at most.
std::optional<Refusal> CheckPart(const char* field, uint64_t here, uint64_t before, uint64_t after,
                                 uint64_t most) {
  if (here == 0) return Bad(field, "none");
  if (here > most || before > most || after > most) {
    return Bad(field, absl::StrCat(before, " + ", here, " + ", after, ": at most ", most));
  }
  return std::nullopt;
}

std::optional<Refusal> CheckNumbers(const Layout& layout) {
  if (layout.element_type > ElementType::kInt8) {
    return Bad("layout.element_type",
               absl::StrCat("unknown (", static_cast<int>(layout.element_type), ")"));
  }
  if (layout.scales != ScalesOf(layout.element_type)) {
    return Bad("layout.scales", absl::StrCat("not those of ", NameOf(layout.element_type), " (",
                                             static_cast<int>(layout.scales), ")"));
  }
  if (layout.kv_order > KvOrder::kInner) {
    return Bad("layout.kv_order",
               absl::StrCat("unknown (", static_cast<int>(layout.kv_order), ")"));
  }
  if (layout.row_order > RowOrder::kTokenMajor) {
    return Bad("layout.row_order",
               absl::StrCat("unknown (", static_cast<int>(layout.row_order), ")"));
  }
  return std::nullopt;
}

struct FieldRow {
  const char* field;
  std::string mine, theirs;
};

template <typename T>
std::string Shown(T value) {
  return absl::StrCat(static_cast<uint64_t>(value));
}

const char* NameOf(KvOrder order) {
  return order == KvOrder::kOuter ? "[K,V] outermost" : "[K,V] innermost";
}
const char* NameOf(RowOrder order) {
  return order == RowOrder::kHeadMajor ? "head-major" : "token-major";
}

}  // namespace

const char* NameOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return "f32";
    case ElementType::kF16:
      return "f16";
    case ElementType::kBf16:
      return "bf16";
    case ElementType::kInt8:
      return "int8";
  }
  return "unknown";
}

std::optional<Refusal> CheckLayout(const Layout& layout) {
  if (layout.version != kLayoutVersion) {
    return Bad("layout.version", absl::StrCat(static_cast<int>(layout.version), ", not ",
                                              static_cast<int>(kLayoutVersion)));
  }
  if (layout.kind != LayoutKind::kGqa) {
    return Bad("layout.kind", absl::StrCat(KindName(layout.kind), " is not supported"));
  }
  if (auto bad = CheckPart("layout.layers", layout.layers, layout.layers_before,
                           layout.layers_after, kLayersMax)) {
    return bad;
  }
  if (auto bad = CheckPart("layout.kv_heads", layout.kv_heads, layout.heads_before,
                           layout.heads_after, kHeadsMax)) {
    return bad;
  }
  if (layout.head_dim == 0 || layout.head_dim > kHeadDimMax) {
    return Bad("layout.head_dim", absl::StrCat(layout.head_dim, ": 1 to ", kHeadDimMax));
  }
  if (layout.block_tokens == 0 || layout.block_rows() > kBlockRowsMax) {
    return Bad("layout.block_tokens",
               absl::StrCat(layout.block_tokens, " make ", layout.block_rows(),
                            " rows of a block: 1 to ", kBlockRowsMax));
  }
  if (auto bad = CheckNumbers(layout)) return bad;
  if (layout.blocks == 0) return Bad("layout.blocks", "the pool is empty");
  if (layout.blocks > kPoolBytesMax / (layout.block_bytes() * layout.layers)) {
    return Bad("layout.blocks", absl::StrCat(layout.blocks, ": no pool is that large"));
  }
  return std::nullopt;
}

std::optional<Refusal> CompareLayouts(const Layout& mine, const Layout& theirs) {
  const FieldRow rows[] = {
      {"layout.version", Shown(mine.version), Shown(theirs.version)},
      {"layout.kind", KindName(mine.kind), KindName(theirs.kind)},
      {"layout.layers", Shown(mine.layers), Shown(theirs.layers)},
      {"layout.layers_before", Shown(mine.layers_before), Shown(theirs.layers_before)},
      {"layout.layers_after", Shown(mine.layers_after), Shown(theirs.layers_after)},
      {"layout.kv_heads", Shown(mine.kv_heads), Shown(theirs.kv_heads)},
      {"layout.heads_before", Shown(mine.heads_before), Shown(theirs.heads_before)},
      {"layout.heads_after", Shown(mine.heads_after), Shown(theirs.heads_after)},
      {"layout.head_dim", Shown(mine.head_dim), Shown(theirs.head_dim)},
      {"layout.block_tokens", Shown(mine.block_tokens), Shown(theirs.block_tokens)},
      {"layout.element_type", NameOf(mine.element_type), NameOf(theirs.element_type)},
      {"layout.scales", Shown(mine.scales), Shown(theirs.scales)},
      {"layout.kv_order", NameOf(mine.kv_order), NameOf(theirs.kv_order)},
      {"layout.row_order", NameOf(mine.row_order), NameOf(theirs.row_order)},
  };
  for (const FieldRow& row : rows) {
    if (row.mine == row.theirs) continue;
    return Refusal{row.field, absl::StrCat(row.field, " differs: ours ", row.mine, ", the peer's ",
                                           row.theirs)};
  }
  return std::nullopt;
}

// u8 version | u8 kind | u16 bytes | so many bytes, which only that version and kind define
void Put(ByteWriter& out, const Layout& layout) {
  out.Put<uint8_t>(layout.version);
  out.Put<uint8_t>(static_cast<uint8_t>(layout.kind));
  out.Put<uint16_t>(kGqaBytes);
  for (const uint32_t number : {layout.layers, layout.layers_before, layout.layers_after,
                                layout.kv_heads, layout.heads_before, layout.heads_after,
                                layout.head_dim, layout.block_tokens, layout.blocks}) {
    out.Put<uint32_t>(number);
  }
  out.Put<uint8_t>(static_cast<uint8_t>(layout.element_type));
  out.Put<uint8_t>(static_cast<uint8_t>(layout.scales));
  out.Put<uint8_t>(static_cast<uint8_t>(layout.kv_order));
  out.Put<uint8_t>(static_cast<uint8_t>(layout.row_order));
}

Layout GetLayout(ByteReader& in) {
  Layout layout;
  layout.version = in.Get<uint8_t>();
  layout.kind = static_cast<LayoutKind>(in.Get<uint8_t>());
  const uint16_t bytes = in.Get<uint16_t>();
  if (layout.version != kLayoutVersion || layout.kind != LayoutKind::kGqa) {
    in.GetBytes(bytes);
    return layout;
  }
  // A size that is not the kind's is read as beyond the end, which makes `in` not ok.
  if (bytes != kGqaBytes) in.GetBytes(in.remaining() + 1);
  for (uint32_t* number : {&layout.layers, &layout.layers_before, &layout.layers_after,
                           &layout.kv_heads, &layout.heads_before, &layout.heads_after,
                           &layout.head_dim, &layout.block_tokens, &layout.blocks}) {
    *number = in.Get<uint32_t>();
  }
  layout.element_type = static_cast<ElementType>(in.Get<uint8_t>());
  layout.scales = static_cast<Scales>(in.Get<uint8_t>());
  layout.kv_order = static_cast<KvOrder>(in.Get<uint8_t>());
  layout.row_order = static_cast<RowOrder>(in.Get<uint8_t>());
  return layout;
}

}  // namespace baton::kv

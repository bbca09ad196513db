// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K6: which two processes pair, and the Hello's bytes.
#include "kv_transfer/hello.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/ensure.h"

namespace baton::kv {
namespace {

constexpr uint32_t kTextMax = 256;
constexpr uint32_t kOffersMax = 8;
constexpr uint32_t kBlobMax = 64u << 10;

template <typename T>
std::optional<Refusal> Differ(absl::string_view field, const T& mine, const T& theirs) {
  if (mine == theirs) return std::nullopt;
  return Refusal{std::string(field),
                 absl::StrCat(field, " differs: ours ", mine, ", the peer's ", theirs)};
}

std::optional<Refusal> CheckLayout(const Layout& mine, const Layout& theirs) {
  const struct {
    const char* field;
    uint64_t mine, theirs;
  } rows[] = {
      {"layout.kind", static_cast<uint64_t>(mine.kind), static_cast<uint64_t>(theirs.kind)},
      {"layout.layers", mine.layers, theirs.layers},
      {"layout.kv_heads", mine.kv_heads, theirs.kv_heads},
      {"layout.head_dim", mine.head_dim, theirs.head_dim},
      {"layout.block_tokens", mine.block_tokens, theirs.block_tokens},
      {"layout.element_type", mine.element_type, theirs.element_type},
      {"layout.element_bytes", mine.element_bytes, theirs.element_bytes},
      {"layout.scale_bytes", mine.scale_bytes, theirs.scale_bytes},
  };
  for (const auto& row : rows) {
    if (auto refusal = Differ(row.field, row.mine, row.theirs)) return refusal;
  }
  return std::nullopt;
}

void PutLayout(ByteWriter& out, const Layout& layout) {
  out.Put<uint8_t>(static_cast<uint8_t>(layout.kind));
  out.Put<uint32_t>(layout.layers);
  out.Put<uint32_t>(layout.kv_heads);
  out.Put<uint32_t>(layout.head_dim);
  out.Put<uint32_t>(layout.block_tokens);
  out.Put<uint8_t>(layout.element_type);
  out.Put<uint32_t>(layout.element_bytes);
  out.Put<uint32_t>(layout.scale_bytes);
  out.Put<uint32_t>(layout.blocks);
}

Layout GetLayout(ByteReader& in) {
  Layout layout;
  layout.kind = static_cast<LayoutKind>(in.Get<uint8_t>());
  layout.layers = in.Get<uint32_t>();
  layout.kv_heads = in.Get<uint32_t>();
  layout.head_dim = in.Get<uint32_t>();
  layout.block_tokens = in.Get<uint32_t>();
  layout.element_type = in.Get<uint8_t>();
  layout.element_bytes = in.Get<uint32_t>();
  layout.scale_bytes = in.Get<uint32_t>();
  layout.blocks = in.Get<uint32_t>();
  return layout;
}

void PutText(ByteWriter& out, const std::string& text) {
  ENSURE(text.size() <= kTextMax);
  out.PutString(text);
}

}  // namespace

std::optional<Refusal> CheckPair(const Hello& mine, const Hello& theirs,
                                 bool allow_mixed_numerics) {
  if (auto refusal = Differ("protocol", mine.protocol, theirs.protocol)) return refusal;
  const bool workers = (mine.role == Role::kDecode && theirs.role == Role::kPrefill) ||
                       (mine.role == Role::kPrefill && theirs.role == Role::kDecode);
  if (!workers) return Refusal{"role", "a link joins a prefill and a decode worker"};
  if (theirs.self.worker.empty() || theirs.self.worker == mine.self.worker) {
    return Refusal{"worker", "the peer has our own name, or none"};
  }
  if (theirs.self.incarnation == Incarnation() ||
      theirs.self.incarnation == mine.self.incarnation) {
    return Refusal{"incarnation", "the peer has our own incarnation, or none"};
  }
  if (mine.model_fingerprint != theirs.model_fingerprint) {
    return Refusal{"model", absl::StrFormat("model differs: ours %016x, the peer's %016x",
                                            mine.model_fingerprint, theirs.model_fingerprint)};
  }
  if (auto refusal = CheckLayout(mine.layout, theirs.layout)) return refusal;
  if (theirs.layout.blocks == 0) return Refusal{"layout.blocks", "the peer's pool is empty"};
  if (allow_mixed_numerics) return std::nullopt;
  return Differ("numeric class", mine.numeric_class, theirs.numeric_class);
}

void Put(ByteWriter& out, const Hello& hello) {
  out.Put<uint32_t>(hello.protocol);
  out.Put<uint8_t>(static_cast<uint8_t>(hello.role));
  PutText(out, hello.self.worker);
  out.Put<uint64_t>(hello.self.incarnation.value());
  PutText(out, hello.to);
  PutText(out, hello.process.boot_id);
  out.Put<uint64_t>(hello.process.pid_namespace);
  out.Put<uint32_t>(hello.process.pid);
  out.Put<uint64_t>(hello.process.start_time);
  PutText(out, hello.host);
  out.Put<uint64_t>(hello.net_namespace);
  out.Put<uint64_t>(hello.ipc_namespace);
  out.Put<uint64_t>(hello.model_fingerprint);
  PutLayout(out, hello.layout);
  PutText(out, hello.numeric_class);
  ENSURE(hello.offers.size() <= kOffersMax);
  out.Put<uint8_t>(static_cast<uint8_t>(hello.offers.size()));
  for (const DataPathOffer& offer : hello.offers) {
    ENSURE(offer.blob.size() <= kBlobMax);
    out.Put<uint8_t>(static_cast<uint8_t>(offer.path));
    PutText(out, offer.name);
    out.Put<uint32_t>(static_cast<uint32_t>(offer.blob.size()));
    out.PutBytes(offer.blob);
  }
}

Hello GetHello(ByteReader& in) {
  Hello hello;
  hello.protocol = in.Get<uint32_t>();
  if (hello.protocol != kProtocolVersion) {  // its own layout; CheckPair names the field
    in.GetBytes(in.remaining());
    return hello;
  }
  hello.role = static_cast<Role>(in.Get<uint8_t>());
  hello.self.worker = in.GetString(kTextMax);
  hello.self.incarnation = Incarnation(in.Get<uint64_t>());
  hello.to = in.GetString(kTextMax);
  hello.process.boot_id = in.GetString(kTextMax);
  hello.process.pid_namespace = in.Get<uint64_t>();
  hello.process.pid = in.Get<uint32_t>();
  hello.process.start_time = in.Get<uint64_t>();
  hello.host = in.GetString(kTextMax);
  hello.net_namespace = in.Get<uint64_t>();
  hello.ipc_namespace = in.Get<uint64_t>();
  hello.model_fingerprint = in.Get<uint64_t>();
  hello.layout = GetLayout(in);
  hello.numeric_class = in.GetString(kTextMax);
  const uint32_t offers = in.Get<uint8_t>();
  for (uint32_t i = 0; i < offers && in.ok(); ++i) {
    DataPathOffer offer;
    offer.path = static_cast<char>(in.Get<uint8_t>());
    offer.name = in.GetString(kTextMax);
    const uint32_t size = in.Get<uint32_t>();
    // A size beyond the bound is read as beyond the end, which makes `in` not ok.
    const auto blob = in.GetBytes(size > kBlobMax || i >= kOffersMax ? in.remaining() + 1 : size);
    offer.blob.assign(blob.begin(), blob.end());
    hello.offers.push_back(std::move(offer));
  }
  return hello;
}

}  // namespace baton::kv

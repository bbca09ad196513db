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

// Conversions that a writer carries out: one block becomes one block, of the same rows.  What lies
// in parts on several shards, or in blocks of other sizes, is not pushed: a ticket names blocks
// of kBlockTokens.
std::optional<Refusal> CheckLayouts(const Layout& mine, const Layout& theirs, bool convert) {
  if (auto refusal = CheckLayout(theirs)) return refusal;
  auto differs = CompareLayouts(mine, theirs);
  if (!differs) return std::nullopt;
  Layout alike = theirs;
  alike.element_type = mine.element_type;
  alike.scales = mine.scales;
  alike.kv_order = mine.kv_order;
  alike.row_order = mine.row_order;
  if (auto other = CompareLayouts(mine, alike)) return other;
  if (convert) return std::nullopt;
  differs->message += "; kv_transfer.allow_conversion: true lets the writer convert";
  return differs;
}

void PutText(ByteWriter& out, const std::string& text) {
  ENSURE(text.size() <= kTextMax);
  out.PutString(text);
}

}  // namespace

std::optional<Refusal> CheckPair(const Hello& mine, const Hello& theirs, const PairRules& rules) {
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
  if (auto refusal = CheckLayouts(mine.layout, theirs.layout, rules.allow_conversion)) {
    return refusal;
  }
  if (rules.allow_mixed_numerics) return std::nullopt;
  return Differ("numeric class", mine.numeric_class, theirs.numeric_class);
}

const Layout& SourceOf(const Hello& mine, const Hello& theirs) {
  return mine.role == Role::kPrefill ? mine.layout : theirs.layout;
}
const Layout& TargetOf(const Hello& mine, const Hello& theirs) {
  return mine.role == Role::kPrefill ? theirs.layout : mine.layout;
}
bool MixedNumerics(const Hello& mine, const Hello& theirs) {
  return mine.numeric_class != theirs.numeric_class ||
         mine.layout.element_type != theirs.layout.element_type;
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
  Put(out, hello.layout);
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

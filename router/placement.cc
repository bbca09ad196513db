// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/placement.h"

#include <algorithm>
#include <utility>

namespace baton::router {
namespace {

// A last resort costs more than any sequence could.
constexpr uint64_t kLastResortCost = uint64_t{1} << 40;
// A prompt without a writer stalls decode's batch: as if it had this many times its tokens.
constexpr uint64_t kNoWriterFactor = 4;
// A block that must be evicted, or waited for, counts as this many tokens.
constexpr uint64_t kMissingBlockTokens = 4 * kBlockTokens;

// Keeps a last resort the last.
constexpr double kExposedTokensMax = 1u << 30;

uint64_t Cost(const Question& question, const Candidate& candidate) {
  const uint32_t cached = std::min(candidate.cached_tokens, question.tokens);
  return candidate.load_tokens + (question.tokens - cached) +
         (candidate.last_resort ? kLastResortCost : 0);
}

uint64_t MemoryCost(const Question& question, const WorkerStatus& status) {
  const uint32_t needed = BlocksFor(uint64_t{question.tokens} + 1);
  const uint32_t there = status.blocks_available;
  return needed > there ? (needed - there) * kMissingBlockTokens : 0;
}

// The writer's own words are the fresher ones.
const LinkStatus* LinkBetween(const WorkerStatus& decode, const WorkerStatus& prefill) {
  for (const auto& [said_by, other] :
       {std::pair(&prefill, &decode), std::pair(&decode, &prefill)}) {
    for (const LinkStatus& link : said_by->links) {
      if (link.peer == other->self) return &link;
    }
  }
  return nullptr;
}

// The cheapest so far; of equals, the first at or after the rotation's place.
struct Best {
  uint64_t cost = 0;
  size_t turn = 0;
  std::optional<size_t> index;

  void Offer(size_t at, size_t count, uint64_t rotation, uint64_t offered) {
    const size_t offered_turn = (at + count - rotation % count) % count;
    if (index && (offered > cost || (offered == cost && offered_turn >= turn))) return;
    cost = offered;
    turn = offered_turn;
    index = at;
  }
};

Best BestWriter(const Question& question, const Candidate& decode,
                absl::Span<const Candidate> prefills) {
  Best best;
  for (size_t i = 0; i < prefills.size(); ++i) {
    if (!Linked(*decode.status, *prefills[i].status)) continue;
    best.Offer(i, prefills.size(), question.rotation,
               Cost(question, prefills[i]) + ExposedTokens(question, decode, prefills[i]));
  }
  return best;
}

}  // namespace

uint64_t ExposedTokens(const Question& question, const Candidate& decode,
                       const Candidate& prefill) {
  const WorkerStatus& owner = *decode.status;
  const double speed = prefill.status->prompt_tokens_per_second;
  const LinkStatus* link = LinkBetween(owner, *prefill.status);
  if (link == nullptr || link->cost.bandwidth <= 0 || speed <= 0 || owner.kv_layers == 0) return 0;
  const uint32_t pushed = question.tokens - std::min(decode.cached_tokens, question.tokens);
  const uint32_t computed = question.tokens - std::min(prefill.cached_tokens, question.tokens);
  LinkWork work = WorkOfBlocks(BlocksFor(pushed), owner.kv_block_bytes, owner.kv_layers);
  work.bytes += link->in_flight_bytes;
  const double transfer = absl::ToDoubleSeconds(link->cost.Predict(work));
  // Layers leave while later ones are computed; the last one cannot.
  const double hidden_at_most = computed / speed;
  const double exposed = std::max(transfer - hidden_at_most, transfer / owner.kv_layers);
  const double tokens = std::min(exposed * speed, kExposedTokensMax);
  return static_cast<uint64_t>(tokens) / kBlockTokens * kBlockTokens;
}

bool Linked(const WorkerStatus& decode, const WorkerStatus& prefill) {
  if (decode.model_fingerprint != prefill.model_fingerprint) return false;
  return std::any_of(decode.links.begin(), decode.links.end(),
                     [&](const LinkStatus& link) { return link.peer == prefill.self; });
}

std::optional<Placement> Place(const Question& question, absl::Span<const Candidate> decodes,
                               absl::Span<const Candidate> prefills) {
  Best best;
  std::vector<std::optional<size_t>> writers(decodes.size());
  for (size_t i = 0; i < decodes.size(); ++i) {
    uint64_t cost = Cost(question, decodes[i]) + MemoryCost(question, *decodes[i].status);
    if (question.writer_wanted) {
      const Best writer = BestWriter(question, decodes[i], prefills);
      writers[i] = writer.index;
      cost += writer.index ? writer.cost : kNoWriterFactor * question.tokens;
    }
    best.Offer(i, decodes.size(), question.rotation, cost);
  }
  if (!best.index) return std::nullopt;
  Placement placement{.decode = decodes[*best.index].worker};
  if (writers[*best.index]) placement.prefill = prefills[*writers[*best.index]].worker;
  return placement;
}

}  // namespace baton::router

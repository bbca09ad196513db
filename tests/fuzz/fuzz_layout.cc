// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as two layout descriptors: what is sound is planned, and a plan stays within the
// blocks of both sides; small ones are run on whatever the bytes are.
// DEPS: kv_core
#include <cstdint>
#include <vector>

#include "base/ensure.h"
#include "kv_transfer/conversion.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;      // NOLINT: a fuzz target of one file
  using namespace baton::kv;  // NOLINT
  ByteReader in(absl::Span<const uint8_t>(data, size));
  const Layout source = GetLayout(in);
  const Layout target = GetLayout(in);
  if (!in.ok()) return 0;
  const auto planned = PlanConversion(source, target);
  if (const auto* refusal = std::get_if<Refusal>(&planned)) {
    ENSURE(refusal->field.rfind("layout.", 0) == 0);
    return 0;
  }
  const auto* plan = std::get_if<ConversionPlan>(&planned);
  if (plan == nullptr || plan->source_block_bytes * plan->source_blocks > 1u << 16 ||
      plan->target_block_bytes * plan->target_blocks > 1u << 16) {
    return 0;
  }
  // Memory of exactly the blocks' size: a sanitizer sees who leaves it.
  std::vector<std::vector<uint8_t>> blocks(plan->source_blocks);
  std::vector<const uint8_t*> pointers;
  for (std::vector<uint8_t>& block : blocks) {
    block.assign(plan->source_block_bytes, size == 0 ? 0 : data[size - 1]);
    pointers.push_back(block.data());
  }
  std::vector<uint8_t> made(plan->target_blocks * plan->target_block_bytes);
  Convert(*plan, pointers, absl::MakeSpan(made));
  return 0;
}

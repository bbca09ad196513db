// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as what one reactor says to another: offers, path messages, message headers.  What
// is accepted must survive being written again.
// DEPS: kv_wire
#include <cstdint>

#include "base/ensure.h"
#include "kv_transfer/ucx_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::kv;
  const absl::Span<const uint8_t> bytes(data, size);
  if (const auto offer = DecodeMemoryOffer(bytes); offer.ok()) {
    const auto again = DecodeMemoryOffer(Encode(*offer));
    ENSURE(again.ok() && *again == *offer);
    if (const auto port = RdmaPort(*offer); port.ok()) {
      ENSURE(RdmaAddress(*port) == offer->worker_address);
    }
  }
  if (const auto message = DecodePathMessage(bytes); message.ok()) {
    const auto again = DecodePathMessage(Encode(*message));
    ENSURE(again.ok() && *again == *message);
  }
  if (const auto header = DecodeMessageHeader(bytes); header.ok()) {
    const auto again = DecodeMessageHeader(Encode(*header));
    ENSURE(again.ok() && *again == *header);
  }
  return 0;
}

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// CRC32C (Castagnoli, reflected, inverted at both ends): finds damaged bytes, not forged ones.
//
// Thread: any.  Cost: with the processor's instruction (SSE4.2) about what reading the bytes
// costs; without it about 0.7 GB/s.  Never fails.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace baton {

// Of `before`'s bytes and these behind them: Crc32c(b, Crc32c(a)) is that of a and b joined.
uint32_t Crc32c(absl::Span<const uint8_t> bytes, uint32_t before = 0);

// The same without the instruction.
uint32_t PortableCrc32c(absl::Span<const uint8_t> bytes, uint32_t before = 0);

}  // namespace baton

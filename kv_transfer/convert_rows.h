// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Rows of one element type as rows of another, through floats.
//
// Halves and brain floats are rounded to nearest even.  int8 has a scale per row, of the row's
// largest magnitude / 127.  The result does not depend on the instruction set.
//
// Thread: any; pure.  Cost: a few times memcpy's (bench/kv/conversion_bench.cc); AVX2 where the
//         processor has it.
#pragma once

#include <cstdint>

#include "kv_transfer/layout.h"

namespace baton::kv {

class RowConverter {
 public:
  RowConverter(ElementType source, ElementType target, uint32_t head_dim);

  // Rows behind one another on both sides, and their scales likewise (unread, or unwritten,
  // where the type has none).  No alignment is asked for.
  void Run(const uint8_t* source, const uint8_t* source_scales, uint8_t* target,
           uint8_t* target_scales, uint32_t rows) const {
    run_(*this, source, source_scales, target, target_scales, rows);
  }

  const ElementType source_type, target_type;
  const uint32_t head_dim;

 private:
  void (*const run_)(const RowConverter&, const uint8_t*, const uint8_t*, uint8_t*, uint8_t*,
                     uint32_t);
};

// The same without wide instructions.
void ConvertRowsPortably(const RowConverter& types, const uint8_t* source,
                         const uint8_t* source_scales, uint8_t* target, uint8_t* target_scales,
                         uint32_t rows);

}  // namespace baton::kv

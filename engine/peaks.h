// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What this machine gives at most, measured with the instructions that the kernels use: the
// limits beside which a benchmark's figures are read.
//
// Thread: starts and joins threads of its own.
// Cost:   about half a second, and 128 MiB per thread.
// Fails:  Unavailable for an instruction set that the machine lacks.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/forward.h"

namespace baton::engine {

// Per second, all threads together; the best of several passes.  A multiplication with an
// addition is two operations.  All 0 for the scalar kernels, which have no instructions of
// their own.
struct Peaks {
  double read_bytes = 0;
  double int8_ops = 0;
  double float_ops = 0;
};

absl::StatusOr<Peaks> MeasurePeaks(Isa isa, uint32_t threads);

}  // namespace baton::engine

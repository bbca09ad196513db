// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which kernels this machine can run.
#pragma once

#include "absl/status/statusor.h"
#include "engine/cpu/kernels.h"
#include "engine/forward.h"

namespace baton::engine::cpu {

// kAuto: the best there is.  Unavailable if the machine lacks what is asked for.
absl::StatusOr<const Kernels*> ChooseKernels(Isa isa);

}  // namespace baton::engine::cpu

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/isa.h"

#include <cpuid.h>

#include "absl/status/status.h"

namespace baton::engine::cpu {
namespace {

// Not every compiler knows the name for __builtin_cpu_supports.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// The compiler's run-time check asks the operating system too (saved registers).
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

absl::StatusOr<const Kernels*> ChooseKernels(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return &ScalarKernels();
    case Isa::kAvx2:
      if (HasAvx2()) return &Avx2Kernels();
      return absl::UnavailableError("this CPU has no AVX2 with FMA and F16C");
    case Isa::kAvx512:
      if (HasAvx512()) return &Avx512Kernels();
      return absl::UnavailableError("this CPU has no AVX-512 with BW, VL, DQ and VNNI");
    case Isa::kAuto:
      break;
  }
  if (HasAvx512()) return &Avx512Kernels();
  if (HasAvx2()) return &Avx2Kernels();
  return &ScalarKernels();
}

}  // namespace baton::engine::cpu

// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The AVX-512 kernels' own source, compiled on top of an emulation.
#include "tests/engine_cpu/emulated_avx512.h"

#define BATON_AVX512_KERNELS EmulatedAvx512Kernels
#include "engine/cpu/kernels_avx512.cc"

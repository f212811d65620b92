// What the CPU at hand can do, as the library sees it: ONEDNN_MAX_CPU_ISA
// lowers it.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace convgrad::onednn {

// Returns the name of the newest instruction set that the library uses, as in
// ONEDNN_MAX_CPU_ISA, in lower case: "avx2", "avx512_core_fp16"...
absl::string_view InstructionSet();

// Whether bf16 convolutions are faster by the CPU's own instructions than by
// way of f32, conversions included. They are on AMX, and on AMD's Zen 4 and
// later, whose bf16 products run at twice the rate of f32. Measured with
// tests/bench/compute_ratio, Intel's CPUs of before AMX, or with AMX hidden,
// are slower in bf16, and CPUs without such instructions emulate them.
bool IsFasterInBf16();

// Channels per block of activations in the layout that the library's own
// choices agree on: 16 with AVX-512, 8 without.
int64_t ChannelsPerBlock();

}  // namespace convgrad::onednn

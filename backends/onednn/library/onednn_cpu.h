// Reports the features of this CPU as the library uses them: ONEDNN_MAX_CPU_ISA
// restricts them.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace convgrad::onednn {

// Returns the name of the newest instruction set that the library uses, as in
// ONEDNN_MAX_CPU_ISA but in lower case: "avx2", "avx512_core_fp16"...
absl::string_view InstructionSet();

// Returns whether bf16 convolutions are faster with the CPU's bf16 instructions
// than in f32, conversions included. This is true with AMX and on AMD's Zen 4
// and later, whose bf16 products have twice the rate of f32. Intel's CPUs
// before AMX, or with AMX disabled, are slower in bf16 (measured with
// tests/bench/compute_ratio), and CPUs without such instructions emulate them.
bool IsFasterInBf16();

// Returns whether bf16 convolutions and products use AMX's tiles, which take
// activations in channels last alone: in blocks the library computes with
// vectors, slower than in f32 (ResNet-18's training step, batch 16, Xeon: 190
// ms in channels last, 802 in blocks, 460 in f32).
bool HasTiles();

// Returns the channels per block of activations in the layout that most of the
// library's implementations choose: 16 with AVX-512, 8 without.
int64_t ChannelsPerBlock();

}  // namespace convgrad::onednn

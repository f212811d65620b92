// Computes the random bits of dropout by Philox4x32-10: Salmon, Moraes, Dror
// and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011). A pure
// function, so that every backend, repeat and recomputation has the same bits.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace convgrad {

using PhiloxBlock = std::array<uint32_t, 4>;

// Returns four words of 32 random bits. The constants are the paper's.
inline PhiloxBlock Philox4x32(PhiloxBlock counter,
                              std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultipliers[2] = {0xd2511f53, 0xcd9e8d57};
  constexpr uint32_t kWeyl[2] = {0x9e3779b9, 0xbb67ae85};
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t first = kMultipliers[0] * counter[0];
    const uint64_t second = kMultipliers[1] * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(first)};
    key[0] += kWeyl[0];
    key[1] += kWeyl[1];
  }
  return counter;
}

// A program's randomness operand, which determines the masks of one run.
struct DropoutSeed {
  int64_t seed = 0;
  int64_t run = 0;
};

// Returns the words of elements 4 * group to 4 * group + 3 of step `step`, in
// row-major logical order (N, C, spatial). If dropout is by row, an element is
// an item of the batch. The key is the seed, low word first. The counter has
// the group in its low 50 bits, the step in the next 14 and the run in the
// upper 64, so that all blocks of a session are different. Requires: step <
// 2^14, group < 2^50.
inline PhiloxBlock DropoutWords(const DropoutSeed& seed, int64_t step,
                                int64_t group) {
  const auto low =
      static_cast<uint64_t>(group) | (static_cast<uint64_t>(step) << 50);
  const auto run = static_cast<uint64_t>(seed.run);
  const auto key = static_cast<uint64_t>(seed.seed);
  return Philox4x32(
      {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
       static_cast<uint32_t>(run), static_cast<uint32_t>(run >> 32)},
      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

// Returns the threshold of an element's word. If the word is at least this, the
// element is kept and multiplied by 1 / (1 - p); otherwise it is multiplied by
// 0. Requires: 0 <= p <= 1.
inline uint64_t DropoutThreshold(double p) {
  return static_cast<uint64_t>(std::ceil(p * 0x1p32));
}

}  // namespace convgrad

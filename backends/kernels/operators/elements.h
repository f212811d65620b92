// Loads and stores single elements of activations, for loops that compute.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backends/core/data_type.h"

namespace convgrad {

// Return element `i` of an f32 or bf16 tensor, and write it, rounded to nearest
// even. NaN stays NaN.
inline float LoadElement(DataType dtype, const std::byte* tensor, int64_t i) {
  if (dtype == DataType::kF32) {
    return reinterpret_cast<const float*>(tensor)[i];
  }
  const uint32_t bits = reinterpret_cast<const uint16_t*>(tensor)[i];
  return std::bit_cast<float>(bits << 16);
}

inline void StoreElement(DataType dtype, float value, std::byte* tensor,
                         int64_t i) {
  if (dtype == DataType::kF32) {
    reinterpret_cast<float*>(tensor)[i] = value;
    return;
  }
  constexpr uint16_t kQuietNan = 0x7fc0;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  reinterpret_cast<uint16_t*>(tensor)[i] =
      std::isnan(value) ? kQuietNan : static_cast<uint16_t>(rounded >> 16);
}

}  // namespace convgrad

// Element access in a form that compilers vectorise. bf16 is its 16 bits.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/core/data_type.h"

namespace convgrad::onednn {

using BFloat16Bits = uint16_t;

inline float Load(const float* p) { return *p; }
inline float Load(const BFloat16Bits* p) {
  return std::bit_cast<float>(static_cast<uint32_t>(*p) << 16);
}

inline void Store(float value, float* p) { *p = value; }
// Rounds to nearest even; NaN stays a (quiet) NaN.
inline void Store(float value, BFloat16Bits* p) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  *p = static_cast<BFloat16Bits>(is_nan ? (bits >> 16) | 0x40 : rounded);
}

// The bits of +Inf; positive numbers are the patterns from 1 to it.
inline uint32_t InfinityBits(DataType dtype) {
  switch (dtype) {
    case DataType::kBF16:
      return 0x7f80;
    case DataType::kF16:
      return 0x7c00;
    case DataType::kF32:
      break;
  }
  return 0x7f800000;
}

// Calls body with a null pointer of the element type, float or BFloat16Bits.
// Requires: not f16.
template <typename Body>
auto WithElement(DataType dtype, Body&& body) {
  if (dtype == DataType::kF32) return body(static_cast<float*>(nullptr));
  return body(static_cast<BFloat16Bits*>(nullptr));
}

}  // namespace convgrad::onednn

// Computes 64-bit sizes without wrapping: a result beyond int64_t is nullopt.
// Every size from a request must go through these functions before use.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/types/span.h"

namespace convgrad {

inline std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// Returns the product of `factors` (1 if there are none). A zero factor gives 0
// even if the other factors alone would overflow.
inline std::optional<int64_t> CheckedProduct(
    absl::Span<const int64_t> factors) {
  for (int64_t factor : factors) {
    if (factor == 0) return 0;
  }
  int64_t product = 1;
  for (int64_t factor : factors) {
    std::optional<int64_t> next = CheckedMul(product, factor);
    if (!next) return std::nullopt;
    product = *next;
  }
  return product;
}

// Returns a * b, or the largest int64_t on overflow. Requires: both
// non-negative.
inline int64_t SaturatingMul(int64_t a, int64_t b) {
  return CheckedMul(a, b).value_or(std::numeric_limits<int64_t>::max());
}

// Returns a + b, or the largest int64_t on overflow. Requires: both
// non-negative.
inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  return CheckedAdd(a, b).value_or(std::numeric_limits<int64_t>::max());
}

// Returns a / b rounded up. Requires: a >= 0, b > 0, no overflow of a + b.
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace convgrad

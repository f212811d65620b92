#include "backends/kernels/operators/nonfinite.h"

namespace convgrad {
namespace {

// Inf and NaN have all exponent bits set. Blocks keep the inner counter narrow,
// which vectorises better.
template <typename Bits>
int64_t CountWithExponent(const Bits* data, int64_t count, Bits exponent) {
  constexpr int64_t kBlock = 32768;
  int64_t total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = begin + kBlock < count ? begin + kBlock : count;
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) {
      found = static_cast<Bits>(found + ((data[i] & exponent) == exponent));
    }
    total += found;
  }
  return total;
}

}  // namespace

int64_t CountNonfinite(DataType dtype, const void* data, int64_t count) {
  if (!IsFloating(dtype)) return 0;
  if (dtype == DataType::kF32) {
    return CountWithExponent<uint32_t>(static_cast<const uint32_t*>(data),
                                       count, 0x7f800000);
  }
  return CountWithExponent<uint16_t>(
      static_cast<const uint16_t*>(data), count,
      dtype == DataType::kBF16 ? 0x7f80 : 0x7c00);
}

}  // namespace convgrad

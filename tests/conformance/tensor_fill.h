// These functions make test data that depends only on seed and position, so
// that a swapped tap, group or axis changes a result. `GuardedBuffer` detects
// stray writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/core/data_type.h"

namespace convgrad::testing_support {

// Returns `count` integers from {-4..-1, 1..4}. They are exact in every dtype,
// and sums of up to 2^20 products of two of them are exact in f32.
std::vector<double> IntegerFill(int64_t count, uint64_t seed);

// Returns `count` zero-mean numbers from (-1, 1), rounded to `dtype`.
std::vector<double> RealFill(int64_t count, uint64_t seed, DataType dtype);

// Bytes aligned to 64 with a canary on either side. Move-only.
class GuardedBuffer {
 public:
  // Every byte starts as `fill`; 0xff makes each element of any dtype a NaN.
  explicit GuardedBuffer(int64_t bytes, uint8_t fill = 0xff);

  std::byte* data() { return storage_.data() + begin_; }
  const std::byte* data() const { return storage_.data() + begin_; }
  int64_t size() const { return bytes_; }

  // Returns whether both canaries are unchanged.
  bool GuardsIntact() const;
  // Returns a copy of the bytes between the canaries.
  std::vector<std::byte> Bytes() const;

  GuardedBuffer(GuardedBuffer&&) = default;
  GuardedBuffer& operator=(GuardedBuffer&&) = default;

 private:
  std::vector<std::byte> storage_;
  int64_t bytes_;
  int64_t begin_;
};

}  // namespace convgrad::testing_support

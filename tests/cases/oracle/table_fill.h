// `PackFilled` makes test data for tensors of up to a billion elements. Every
// element is an entry of a small table, chosen by seed and position. So one
// array of indices serves all dtypes, and packing and oracle are look-ups.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "client/cpp/aligned_buffer.h"

namespace convgrad::testing_support {

inline constexpr int kTableSize = 4096;

// `ValueTable` has kTableSize values that `dtype` represents exactly.
// Immutable.
class ValueTable {
 public:
  // Returns the integers -amplitude..-1, 1..amplitude, each equally often.
  // Requires: amplitude 1, 2 or 4.
  static const ValueTable& Integers(DataType dtype, int amplitude);
  // Returns zero-mean numbers from (-1, 1) with all digits of the dtype.
  static const ValueTable& Reals(DataType dtype);

  ValueTable(DataType dtype, const std::vector<double>& values);

  DataType dtype() const { return dtype_; }
  const float* values() const { return values_.data(); }
  // The stored bits, in the low bytes.
  uint32_t bits(int index) const { return bits_[index]; }

 private:
  DataType dtype_;
  std::array<float, kTableSize> values_;
  std::array<uint32_t, kTableSize> bits_;
};

// Table indices of one operand, row-major in logical order.
using FillIndices = std::vector<uint16_t>;

FillIndices RandomIndices(int64_t count, uint64_t seed);

// Returns the table's values as doubles.
std::vector<double> ValuesOf(const FillIndices& indices,
                             const ValueTable& table);

// Returns the tensor's bytes; pad lanes are NaN. Requires: the table's dtype is
// that of the descriptor; an index for each logical element.
absl::StatusOr<AlignedBuffer> PackFilled(const TensorDescriptor& descriptor,
                                         const FillIndices& indices,
                                         const ValueTable& table);

}  // namespace convgrad::testing_support

// `StrideGather` copies between a dense tensor and every other element of a
// larger tensor's rows, as channels-first convolutions of stride 2 need.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/core/data_type.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// The shape of one plane of both tensors.
struct SpacedRows {
  int64_t element_bytes = 0;
  int64_t columns = 0;  // of the dense tensor
  // For each row of the larger tensor, the row of the dense one, or -1.
  Dims dense_rows;
  int64_t dense_row_count = 1;

  int64_t dense_pitch() const { return columns * element_bytes; }
  int64_t dense_bytes() const { return dense_row_count * dense_pitch(); }
  int64_t whole_bytes() const {
    return static_cast<int64_t>(dense_rows.size()) * 2 * dense_pitch();
  }
};

// Immutable; thread-safe. Buffers need no alignment and must not overlap.
class StrideGather {
 public:
  // `whole` is (N, C, spatial...), row-major. The dense tensor has every
  // `steps[i]`-th element of spatial axis i, from the first on. Returns nullopt
  // if the last step isn't 2 or an extent isn't a multiple of its step.
  static std::optional<StrideGather> Make(DataType dtype, const Dims& whole,
                                          const Dims& steps);

  // Returns the number of planes (N times C), which are independent.
  int64_t planes() const { return planes_; }

  // Copies the planes [begin, end) from the larger tensor to the dense one.
  void Gather(const void* whole, void* dense, int64_t begin, int64_t end) const;
  // Copies the planes [begin, end) back, with +0 between the elements.
  void Spread(const void* dense, void* whole, int64_t begin, int64_t end) const;

 private:
  StrideGather() = default;

  SpacedRows rows_;
  int64_t planes_ = 0;
};

}  // namespace convgrad

// Where the elements of a tensor lie, axis by axis: what row-major, channels
// in blocks and blocked weights have in common.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// Index i lies at j * stride if block is 0, else at
//     (j / block) * block_stride + (j % block) * stride,  j = first + i.
// Units: elements.
struct PhysicalAxis {
  int64_t extent;
  int64_t stride;
  int64_t block = 0;
  int64_t block_stride = 0;
  int64_t first = 0;
  // At a destination, [extent, padded) becomes +0; at least extent, and no
  // further than the last block's end.
  int64_t padded = 0;
};

// Offsets add up over the axes, whose order is free.
struct PhysicalLayout {
  absl::InlinedVector<PhysicalAxis, 6> axes;
};

// Returns activations (N, C, spatial...) as N, ceil(C/block), spatial, block,
// whose last block is padded: oneDNN's nCx8c and nCx16c.
PhysicalLayout ChannelBlocked(const Dims& dims, int64_t block);

// Returns the layout of a descriptor, an axis for each of its dims. Requires:
// not kFractalZ3D (see fractal_layout.h).
PhysicalLayout PhysicalLayoutOf(const TensorDescriptor& descriptor);

}  // namespace convgrad

// `PhysicalLayout` describes where a tensor's elements lie, axis by axis. It
// covers row-major tensors, channels in blocks and blocked weights.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// Offset of index i: j * stride if block is 0, else
//     (j / block) * block_stride + (j % block) * stride,  j = first + i.
// Units: elements.
struct PhysicalAxis {
  int64_t extent;
  int64_t stride;
  int64_t block = 0;
  int64_t block_stride = 0;
  int64_t first = 0;
  // In a destination, [extent, padded) is set to +0. At least `extent`, and at
  // most the end of the last block.
  int64_t padded = 0;
};

// An element's offset is the sum over the axes, in any order.
struct PhysicalLayout {
  absl::InlinedVector<PhysicalAxis, 6> axes;
};

// Returns activations (N, C, spatial...) as N, ceil(C/block), spatial, block,
// with a padded last block: oneDNN's nCx8c and nCx16c.
PhysicalLayout ChannelBlocked(const Dims& dims, int64_t block);

// Returns the layout of a descriptor, with one axis for each of its dims.
// Requires: not kFractalZ3D (see fractal_layout.h).
PhysicalLayout PhysicalLayoutOf(const TensorDescriptor& descriptor);

}  // namespace convgrad

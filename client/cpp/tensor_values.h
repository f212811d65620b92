// Tensors of any dtype and layout as doubles in logical order, for files,
// random data and checks. Not meant to be fast.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// Returns all logical elements of `data`, row-major in logical order; pad lanes
// are left out. Requires: data holds ByteSize(descriptor) bytes.
std::vector<double> LoadLogical(const TensorDescriptor& descriptor,
                                const void* data);

// Writes all of `data`: each value rounded once to the descriptor's dtype, pad
// lanes +0. Requires: one value per logical element.
void StoreLogical(const TensorDescriptor& descriptor,
                  absl::Span<const double> values, void* data);

}  // namespace convgrad

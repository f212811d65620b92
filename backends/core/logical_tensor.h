// Reads and writes tensors of any dtype and layout as doubles, row-major in
// logical order. For the reference, files, random data and checks; not
// optimized for speed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// Returns the offset of each element, in elements from the start, in row-major
// logical order. Requires: byte size representable.
std::vector<int64_t> LogicalOffsets(const TensorDescriptor& descriptor);

// Returns all logical elements of `data`; doesn't read pad lanes. Requires:
// data holds ByteSize(descriptor) bytes.
std::vector<double> LoadLogical(const TensorDescriptor& descriptor,
                                const void* data);

// Writes all of `data`: each element rounded once to the descriptor's dtype,
// pad lanes +0. Requires: one value per logical element.
void StoreLogical(const TensorDescriptor& descriptor,
                  absl::Span<const double> values, void* data);

}  // namespace convgrad

// Tensors of any dtype and layout read and written as doubles, row-major in
// logical order: for the reference, files, random data and checks. Not meant to
// be fast.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// Returns where each element lies, in elements from the start, in row-major
// logical order. Requires: byte size representable.
std::vector<int64_t> LogicalOffsets(const TensorDescriptor& descriptor);

// Returns all logical elements of `data`; pad lanes are not read. Requires:
// data holds ByteSize(descriptor) bytes.
std::vector<double> LoadLogical(const TensorDescriptor& descriptor,
                                const void* data);

// Writes all of `data`: each element rounded once to the descriptor's dtype,
// pad lanes +0. Requires: one value per logical element.
void StoreLogical(const TensorDescriptor& descriptor,
                  absl::Span<const double> values, void* data);

}  // namespace convgrad

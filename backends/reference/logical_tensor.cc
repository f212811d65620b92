#include "backends/reference/logical_tensor.h"

#include <cstring>

namespace convgrad {
namespace {

// Moves `index` to the next element in row-major order.
void Advance(const Dims& dims, Dims* index) {
  for (size_t axis = dims.size(); axis-- > 0;) {
    if (++(*index)[axis] < dims[axis]) return;
    (*index)[axis] = 0;
  }
}

}  // namespace

std::vector<int64_t> LogicalOffsets(const TensorDescriptor& descriptor) {
  std::vector<int64_t> offsets(ElementCount(descriptor));
  const bool row_major = IsRowMajor(descriptor.layout);
  const Dims strides = row_major ? Strides(descriptor) : Dims{};
  Dims index(descriptor.dims.size(), 0);
  for (int64_t& offset : offsets) {
    if (row_major) {
      for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
    } else {
      offset = OffsetOf(descriptor, index);
    }
    Advance(descriptor.dims, &index);
  }
  return offsets;
}

std::vector<double> LoadLogical(const TensorDescriptor& descriptor,
                                const void* data) {
  const int64_t width = ByteSizeOf(descriptor.dtype);
  const auto* bytes = static_cast<const char*>(data);
  std::vector<double> values;
  values.reserve(ElementCount(descriptor));
  for (int64_t offset : LogicalOffsets(descriptor)) {
    values.push_back(LoadAsDouble(descriptor.dtype, bytes + offset * width));
  }
  return values;
}

void StoreLogical(const TensorDescriptor& descriptor,
                  absl::Span<const double> values, void* data) {
  if (values.empty()) return;
  const int64_t width = ByteSizeOf(descriptor.dtype);
  auto* bytes = static_cast<char*>(data);
  if (!IsRowMajor(descriptor.layout)) {
    std::memset(bytes, 0, *ByteSize(descriptor));
  }
  const std::vector<int64_t> offsets = LogicalOffsets(descriptor);
  for (size_t i = 0; i < offsets.size(); ++i) {
    StoreRounded(descriptor.dtype, values[i], bytes + offsets[i] * width);
  }
}

}  // namespace convgrad

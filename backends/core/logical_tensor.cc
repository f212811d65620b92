#include "backends/core/logical_tensor.h"

#include <cstring>

namespace convgrad {
namespace {

// Calls visit(offset in elements) for each element, in logical order.
template <typename Visit>
void ForEachOffset(const TensorDescriptor& descriptor, Visit visit) {
  const Dims& dims = descriptor.dims;
  const bool row_major = IsRowMajor(descriptor.layout);
  const Dims strides = row_major ? Strides(descriptor) : Dims{};
  Dims index(dims.size(), 0);
  int64_t offset = 0;
  for (int64_t left = ElementCount(descriptor); left > 0; --left) {
    visit(row_major ? offset : OffsetOf(descriptor, index));
    for (size_t axis = dims.size(); axis-- > 0;) {
      ++index[axis];
      if (row_major) offset += strides[axis];
      if (index[axis] < dims[axis]) break;
      if (row_major) offset -= index[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

std::vector<int64_t> LogicalOffsets(const TensorDescriptor& descriptor) {
  std::vector<int64_t> offsets;
  offsets.reserve(ElementCount(descriptor));
  ForEachOffset(descriptor, [&](int64_t offset) { offsets.push_back(offset); });
  return offsets;
}

std::vector<double> LoadLogical(const TensorDescriptor& descriptor,
                                const void* data) {
  const int64_t width = ByteSizeOf(descriptor.dtype);
  const auto* bytes = static_cast<const char*>(data);
  std::vector<double> values;
  values.reserve(ElementCount(descriptor));
  ForEachOffset(descriptor, [&](int64_t offset) {
    values.push_back(LoadAsDouble(descriptor.dtype, bytes + offset * width));
  });
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
  const double* value = values.data();
  ForEachOffset(descriptor, [&](int64_t offset) {
    StoreRounded(descriptor.dtype, *value++, bytes + offset * width);
  });
}

}  // namespace convgrad

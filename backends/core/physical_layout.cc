#include "backends/core/physical_layout.h"

#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

// Returns blocked channels with the block innermost, and H and W inside the
// blocks. If `depth_outside`, other spatial axes are outside the blocks.
PhysicalLayout Blocked(const Dims& dims, int64_t block, bool depth_outside) {
  const int rank = static_cast<int>(dims.size());
  PhysicalLayout layout;
  for (int64_t extent : dims) layout.axes.push_back({extent, 0});
  int64_t stride = block;
  int axis = rank - 1;
  const int last_outside = depth_outside ? rank - 3 : 1;
  for (; axis >= 2 && axis > last_outside; --axis) {
    layout.axes[axis].stride = stride;
    stride *= dims[axis];
  }
  const int64_t blocks = CeilDiv(dims[1], block);
  layout.axes[1] = {dims[1], 1, block, stride, 0, blocks * block};
  stride *= blocks;
  for (; axis >= 2; --axis) {
    layout.axes[axis].stride = stride;
    stride *= dims[axis];
  }
  layout.axes[0].stride = stride;
  return layout;
}

}  // namespace

PhysicalLayout ChannelBlocked(const Dims& dims, int64_t block) {
  return Blocked(dims, block, false);
}

PhysicalLayout PhysicalLayoutOf(const TensorDescriptor& descriptor) {
  if (descriptor.layout == Layout::kNDC1HWC0) {
    return Blocked(descriptor.dims, descriptor.c0, true);
  }
  PhysicalLayout layout;
  const Dims strides = Strides(descriptor);
  for (size_t i = 0; i < strides.size(); ++i) {
    layout.axes.push_back({descriptor.dims[i], strides[i]});
  }
  return layout;
}

}  // namespace convgrad

#include "backends/core/fractal_layout.h"

#include <algorithm>
#include <numeric>

#include "backends/core/checked_math.h"

namespace convgrad {

int64_t SpatialExtent(const TensorDescriptor& descriptor, int axis) {
  const int skipped = 5 - static_cast<int>(descriptor.dims.size());
  return axis < skipped ? 1 : descriptor.dims[2 + axis - skipped];
}

FractalExtents FractalExtentsOf(const TensorDescriptor& descriptor) {
  FractalExtents f;
  f.icg = descriptor.dims[1];
  f.ocg = descriptor.dims[0] / descriptor.groups;
  const int64_t in_period = std::lcm(f.icg, descriptor.c0) / f.icg;
  const int64_t out_period = std::lcm(f.ocg, kFractalBlock) / f.ocg;
  f.fused_groups = std::min(std::lcm(in_period, out_period), descriptor.groups);
  f.super_groups = CeilDiv(descriptor.groups, f.fused_groups);
  f.c1 = CeilDiv(f.fused_groups * f.icg, descriptor.c0);
  f.n1 = CeilDiv(f.fused_groups * f.ocg, kFractalBlock);
  return f;
}

GroupedWeight::GroupedWeight(const TensorDescriptor& descriptor, int64_t groups)
    : descriptor_(descriptor), groups_(groups) {
  if (descriptor.layout != Layout::kFractalZ3D) {
    super_group_stride_ =
        descriptor.dims[0] / groups * Strides(descriptor).front();
    return;
  }
  const FractalExtents f = FractalExtentsOf(descriptor);
  fused_groups_ = f.fused_groups;
  super_group_stride_ = f.c1 * f.n1 * kFractalBlock * descriptor.c0;
  for (int axis = 0; axis < 3; ++axis) {
    super_group_stride_ *= SpatialExtent(descriptor, axis);
  }
}

PhysicalLayout GroupedWeight::Group(int64_t e) const {
  const TensorDescriptor& d = descriptor_;
  if (d.layout != Layout::kFractalZ3D) {
    PhysicalLayout layout = PhysicalLayoutOf(d);
    layout.axes[0].extent /= groups_;
    return layout;
  }
  const FractalExtents f = FractalExtentsOf(d);
  const int64_t row = f.n1 * kFractalBlock * d.c0;
  const int64_t plane = SpatialExtent(d, 1) * SpatialExtent(d, 2) * row;
  PhysicalLayout layout;
  layout.axes = {{f.ocg, d.c0, 0, 0, e * f.ocg},
                 {f.icg, 1, d.c0, plane, e * f.icg}};
  // Fused groups leave gaps everywhere, so the caller zeroes the buffer first.
  if (f.fused_groups == 1) {
    layout.axes[0].padded = f.n1 * kFractalBlock;
    layout.axes[1].padded = f.c1 * d.c0;
  }
  const int64_t strides[] = {f.c1 * plane, SpatialExtent(d, 2) * row, row};
  const int kernel_rank = static_cast<int>(d.dims.size()) - 2;
  for (int axis = 3 - kernel_rank; axis < 3; ++axis) {
    layout.axes.push_back({SpatialExtent(d, axis), strides[axis]});
  }
  return layout;
}

}  // namespace convgrad

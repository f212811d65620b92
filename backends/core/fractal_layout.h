// Describes FRACTAL_Z_3D and row-major weights as physical layouts, group by
// group (proto/layouts.md, "FRACTAL_Z_3D").
#pragma once

#include <cstdint>

#include "backends/core/physical_layout.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// Output channels per block.
inline constexpr int64_t kFractalBlock = 16;  // output channels

// Returns the extent of a blocked tensor along `axis` of (D, H, W); 1 for a
// missing leading axis.
int64_t SpatialExtent(const TensorDescriptor& descriptor, int axis);

struct FractalExtents {
  int64_t icg, ocg;
  int64_t fused_groups;  // E
  int64_t super_groups;  // G
  int64_t c1, n1;
};

FractalExtents FractalExtentsOf(const TensorDescriptor& descriptor);

// `GroupedWeight` views a weight of any layout as super-groups of groups.
class GroupedWeight {
 public:
  // `groups` is the convolution's number; row-major descriptors needn't have
  // it.
  GroupedWeight(const TensorDescriptor& descriptor, int64_t groups);

  // Returns the number of groups that share blocks; 1 for row-major layouts.
  int64_t fused_groups() const { return fused_groups_; }

  // Units: elements.
  int64_t super_group_stride() const { return super_group_stride_; }

  // Returns the layout of the first super-group's group e, with the axes
  // O/groups, I, kernel.
  PhysicalLayout Group(int64_t e) const;

 private:
  const TensorDescriptor descriptor_;
  const int64_t groups_;
  int64_t fused_groups_ = 1;
  int64_t super_group_stride_ = 0;
};

}  // namespace convgrad

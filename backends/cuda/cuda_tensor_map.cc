#include "backends/cuda/cuda_tensor_map.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/core/fractal_layout.h"
#include "backends/core/physical_layout.h"

namespace convgrad::cuda {
namespace {

// Returns the map's axis for spatial axis i of a tensor with `rank` dims.
size_t SpatialAxisOf(size_t i, size_t rank) { return kMapAxes - rank + i; }

// Returns the extents of `dims`, with the first axis split into groups.
Extents ExtentsOf(const Dims& dims, int64_t groups) {
  Extents extents;
  extents.fill(1);
  extents[kGroupAxis] = groups;
  extents[kOuterAxis] = dims[0] / groups;
  extents[kChannelAxis] = dims[1];
  for (size_t i = 2; i < dims.size(); ++i) {
    extents[SpatialAxisOf(i, dims.size())] = dims[i];
  }
  return extents;
}

void SetStrides(const Dims& strides, int64_t outer, TensorMap* map) {
  map->stride[kGroupAxis] = outer * strides[0];
  map->stride[kOuterAxis] = strides[0];
  map->stride[kChannelAxis] = strides[1];
  for (size_t i = 2; i < strides.size(); ++i) {
    map->stride[SpatialAxisOf(i, strides.size())] = strides[i];
  }
}

TensorMap BlockedMap(const PhysicalLayout& layout) {
  Dims strides;
  for (const PhysicalAxis& axis : layout.axes) strides.push_back(axis.stride);
  TensorMap map;
  SetStrides(strides, 0, &map);
  map.block = layout.axes[1].block;
  map.block_stride = layout.axes[1].block_stride;
  return map;
}

TensorMap FractalMap(const TensorDescriptor& tensor) {
  const GroupedWeight weight(tensor, tensor.groups);
  const FractalExtents f = FractalExtentsOf(tensor);
  TensorMap map = BlockedMap(weight.Group(0));
  map.stride[kGroupAxis] = weight.super_group_stride();
  map.fused_groups = f.fused_groups;
  map.group_outer = f.ocg;
  map.group_channels = f.icg;
  return map;
}

}  // namespace

MappedTensor MapOf(const TensorDescriptor& tensor, int64_t groups) {
  if (!IsWeightLayout(tensor.layout)) groups = 1;
  MappedTensor mapped{tensor.dtype, ExtentsOf(tensor.dims, groups), {}, 0};
  mapped.size = *ByteSize(tensor) / ByteSizeOf(tensor.dtype);
  mapped.has_gaps = mapped.size != *CheckedProduct(mapped.extents);
  if (tensor.layout == Layout::kFractalZ3D) {
    mapped.map = FractalMap(tensor);
  } else if (tensor.layout == Layout::kNDC1HWC0) {
    mapped.map = BlockedMap(PhysicalLayoutOf(tensor));
  } else {
    SetStrides(Strides(tensor), mapped.extents[kOuterAxis], &mapped.map);
  }
  return mapped;
}

MappedTensor MapOf(const StridedView& view, bool is_weight, int64_t groups,
                   int64_t size) {
  if (!is_weight) groups = 1;
  MappedTensor mapped{view.dtype, ExtentsOf(view.dims, groups), {}, size};
  SetStrides(view.strides, mapped.extents[kOuterAxis], &mapped.map);
  mapped.map.offset = view.offset;
  mapped.has_gaps = size != *CheckedProduct(mapped.extents);
  return mapped;
}

TensorMap BroadcastMap(const Dims& dims) {
  TensorMap map;
  SetStrides(BroadcastStrides(dims, dims), 0, &map);
  return map;
}

bool IsPlain(const TensorMap& map) {
  return map.block == 0 && map.fused_groups == 0;
}

void MergeAxes(Extents* extents, absl::Span<TensorMap* const> maps) {
  std::array<int, kMapAxes> order;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return maps[0]->stride[a] < maps[0]->stride[b];
  });
  const Extents old = *extents;
  std::vector<TensorMap> from;
  for (TensorMap* map : maps) {
    from.push_back(*map);
    std::fill(std::begin(map->stride), std::end(map->stride), 0);
  }
  extents->fill(1);
  int rank = 0;
  // Returns whether `axis` continues the last new axis in every map.
  const auto continues = [&](int axis) {
    for (size_t i = 0; i < maps.size(); ++i) {
      if (from[i].stride[axis] !=
          maps[i]->stride[rank - 1] * (*extents)[rank - 1]) {
        return false;
      }
    }
    return true;
  };
  for (int axis : order) {
    if (old[axis] == 1) continue;
    if (rank > 0 && continues(axis)) {
      (*extents)[rank - 1] *= old[axis];
      continue;
    }
    (*extents)[rank] = old[axis];
    for (size_t i = 0; i < maps.size(); ++i) {
      maps[i]->stride[rank] = from[i].stride[axis];
    }
    ++rank;
  }
}

}  // namespace convgrad::cuda

// Where the elements of a tensor lie, as plain numbers that a kernel takes: one
// form for row-major, cropped and padded views, channel blocks and
// FRACTAL_Z_3D.
#pragma once

#include <array>
#include <cstdint>

#include "backends/core/convolution/lowering.h"

namespace convgrad::cuda {

// Activations are indexed (0, n, c, d, h, w), weights (group, output channel of
// the group, input channel of the group, d, h, w); axes that aren't there have
// extent 1. Units: elements.
inline constexpr int kMapAxes = 6;
inline constexpr int kGroupAxis = 0;
inline constexpr int kOuterAxis = 1;
inline constexpr int kChannelAxis = 2;

using Extents = std::array<int64_t, kMapAxes>;

struct TensorMap {
  int64_t stride[kMapAxes] = {};
  int64_t offset = 0;
  // If not 0, channel c lies at (c / block) * block_stride + c % block.
  int64_t block = 0;
  int64_t block_stride = 0;
  // If not 0, so many groups share the blocks of a FRACTAL_Z_3D super-group;
  // stride[kGroupAxis] is from one super-group to the next.
  int64_t fused_groups = 0;
  int64_t group_outer = 0;     // output channels of a group
  int64_t group_channels = 0;  // input channels of a group

  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

// What a kernel walks over.
struct MappedTensor {
  DataType dtype = DataType::kF32;
  Extents extents = {};
  TensorMap map;
  int64_t size = 0;       // elements of the whole buffer
  bool has_gaps = false;  // elements that no index reaches
};

// Returns how a tensor of the caller lies. `groups` are the convolution's and
// count for weights only.
MappedTensor MapOf(const TensorDescriptor& tensor, int64_t groups);

// Returns the same for a view of a lowered problem. Its size is `size`.
MappedTensor MapOf(const StridedView& view, bool is_weight, int64_t groups,
                   int64_t size);

// Returns `tensor`'s view of a bias or other f32 tensor of `dims`, row-major,
// that is broadcast over it: axes of extent 1 have stride 0. Requires: dims of
// the tensor's rank.
TensorMap BroadcastMap(const Dims& dims);

}  // namespace convgrad::cuda

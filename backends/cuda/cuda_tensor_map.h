// `TensorMap` describes a tensor's layout in plain numbers for a kernel. One
// form covers row-major, cropped and padded views, channel blocks and
// FRACTAL_Z_3D.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "backends/core/convolution/lowering.h"

namespace convgrad::cuda {

// Activations have the index (0, n, c, d, h, w), weights (group, output channel
// in the group, input channel in the group, d, h, w). Missing axes have extent
// 1. Units: elements.
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
  // If not 0, the number of groups that share the blocks of a FRACTAL_Z_3D
  // super-group; stride[kGroupAxis] is then the stride of super-groups.
  int64_t fused_groups = 0;
  int64_t group_outer = 0;     // output channels of a group
  int64_t group_channels = 0;  // input channels of a group

  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

// A tensor over which a kernel iterates.
struct MappedTensor {
  DataType dtype = DataType::kF32;
  Extents extents = {};
  TensorMap map;
  int64_t size = 0;       // elements of the whole buffer
  bool has_gaps = false;  // has elements without an index
};

// Returns the map of a tensor of the caller. `groups` are the convolution's and
// matter only for weights.
MappedTensor MapOf(const TensorDescriptor& tensor, int64_t groups);

// Returns the map of a view of a lowered problem in a buffer of `size`
// elements.
MappedTensor MapOf(const StridedView& view, bool is_weight, int64_t groups,
                   int64_t size);

// Returns the map of a row-major f32 tensor of `dims`, e.g. a bias, that is
// broadcast over another tensor: axes of extent 1 have stride 0. Requires: dims
// of that tensor's rank.
TensorMap BroadcastMap(const Dims& dims);

// Returns whether every offset is a sum of index times stride, without blocks.
bool IsPlain(const TensorMap& map);

// Sorts the axes by the stride of `maps[0]`, innermost first, drops axes of
// extent 1, and merges neighbours that every map steps through evenly. Changes
// extents and strides to the new axes; the unused ones have extent 1. Requires:
// plain maps that are iterated together over `extents`.
void MergeAxes(Extents* extents, absl::Span<TensorMap* const> maps);

}  // namespace convgrad::cuda

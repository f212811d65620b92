// Compares the addresses of elements in kernels with core's OffsetOf.
#include "backends/cuda/cuda_tensor_map.h"

#include <set>

#include "backends/core/logical_tensor.h"
#include "gtest/gtest.h"

namespace convgrad::cuda {
namespace {

// Computes the offset as the kernels do.
int64_t OffsetOf(const TensorMap& map, const Extents& index) {
  int64_t group = index[kGroupAxis], outer = index[kOuterAxis];
  int64_t channel = index[kChannelAxis];
  if (map.fused_groups != 0) {
    outer += group % map.fused_groups * map.group_outer;
    channel += group % map.fused_groups * map.group_channels;
    group /= map.fused_groups;
  }
  int64_t offset = map.offset + group * map.stride[kGroupAxis] +
                   outer * map.stride[kOuterAxis];
  offset += map.block != 0
                ? channel / map.block * map.block_stride + channel % map.block
                : channel * map.stride[kChannelAxis];
  for (int axis = kChannelAxis + 1; axis < kMapAxes; ++axis) {
    offset += index[axis] * map.stride[axis];
  }
  return offset;
}

// Returns all offsets, in the logical order of the tensor.
std::vector<int64_t> MappedOffsets(const MappedTensor& tensor) {
  std::vector<int64_t> offsets;
  Extents index = {};
  while (true) {
    offsets.push_back(OffsetOf(tensor.map, index));
    int axis = kMapAxes - 1;
    while (axis >= 0 && ++index[axis] == tensor.extents[axis]) {
      index[axis--] = 0;
    }
    if (axis < 0) return offsets;
  }
}

void ExpectSameOffsets(const TensorDescriptor& tensor) {
  const MappedTensor mapped = MapOf(tensor, tensor.groups);
  const std::vector<int64_t> expected = LogicalOffsets(tensor);
  EXPECT_EQ(MappedOffsets(mapped), expected) << ToString(tensor);
  EXPECT_EQ(mapped.size * ByteSizeOf(tensor.dtype), *ByteSize(tensor));
  EXPECT_EQ(mapped.has_gaps, mapped.size != std::ssize(expected));
}

TEST(CudaTensorMap, ActivationsLieWhereCoreSays) {
  for (Layout layout : {Layout::kNCX, Layout::kNXC, Layout::kNDC1HWC0}) {
    for (const Dims& dims : {Dims{3, 17}, Dims{2, 18, 5}, Dims{2, 16, 3, 4},
                             Dims{2, 33, 2, 3, 5}}) {
      if (layout == Layout::kNDC1HWC0 && dims.size() < 3) continue;
      ExpectSameOffsets({DataType::kBF16, layout, dims, 16});
    }
  }
}

TEST(CudaTensorMap, WeightsLieWhereCoreSays) {
  for (Layout layout :
       {Layout::kOIX, Layout::kOXI, Layout::kXIO, Layout::kFractalZ3D}) {
    for (int64_t groups : {1, 2, 17}) {
      for (const Dims& dims :
           {Dims{34, 3, 5}, Dims{34, 18, 3, 2}, Dims{34, 1, 2, 3, 2}}) {
        ExpectSameOffsets({DataType::kF32, layout, dims, 8, groups});
      }
    }
  }
}

TEST(CudaTensorMap, BroadcastAxesStandStill) {
  const TensorMap map = BroadcastMap({1, 6, 1, 4});
  EXPECT_EQ(OffsetOf(map, {0, 5, 2, 0, 7, 3}), 2 * 4 + 3);
}

TEST(CudaTensorMap, ViewsKeepTheirOffset) {
  const StridedView view{DataType::kF32, {2, 3, 4}, {30, 10, 2}, 5};
  const MappedTensor mapped = MapOf(view, false, 1, 60);
  EXPECT_TRUE(mapped.has_gaps);
  EXPECT_EQ(OffsetOf(mapped.map, {0, 1, 2, 0, 0, 3}), 5 + 30 + 20 + 6);
}

// Returns the pairs of offsets in two maps.
std::multiset<std::pair<int64_t, int64_t>> Pairs(const Extents& extents,
                                                 const TensorMap& a,
                                                 const TensorMap& b) {
  const std::vector<int64_t> in_a = MappedOffsets({DataType::kF32, extents, a});
  const std::vector<int64_t> in_b = MappedOffsets({DataType::kF32, extents, b});
  std::multiset<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < in_a.size(); ++i) pairs.emplace(in_a[i], in_b[i]);
  return pairs;
}

TEST(CudaTensorMap, MergedAxesVisitTheSamePairs) {
  const Dims dims = {3, 5, 1, 4, 7};
  for (Layout from : {Layout::kNCX, Layout::kNXC}) {
    for (Layout to : {Layout::kNCX, Layout::kNXC}) {
      const MappedTensor a = MapOf({DataType::kF32, to, dims}, 1);
      const MappedTensor b = MapOf({DataType::kF32, from, dims}, 1);
      TensorMap merged_a = a.map, merged_b = b.map;
      Extents extents = a.extents;
      MergeAxes(&extents, {&merged_a, &merged_b});
      EXPECT_EQ(Pairs(extents, merged_a, merged_b),
                Pairs(a.extents, a.map, b.map));
      // A copy is one axis; a transposition moves pixels, channels and images.
      EXPECT_EQ(extents[1] == 1, from == to);
      EXPECT_EQ(extents[3], 1);
      EXPECT_EQ(merged_a.stride[0], 1);
    }
  }
}

TEST(CudaTensorMap, MergedAxesKeepBroadcastsApart) {
  const Dims dims = {2, 3, 4, 5};
  const MappedTensor a = MapOf({DataType::kF32, Layout::kNXC, dims}, 1);
  const TensorMap bias = BroadcastMap({1, 3, 1, 1});
  TensorMap merged_a = a.map, merged_bias = bias;
  Extents extents = a.extents;
  MergeAxes(&extents, {&merged_a, &merged_bias});
  EXPECT_EQ(Pairs(extents, merged_a, merged_bias),
            Pairs(a.extents, a.map, bias));
  EXPECT_EQ(extents, (Extents{3, 40, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace convgrad::cuda

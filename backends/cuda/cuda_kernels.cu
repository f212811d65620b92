#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>

#include "backends/cuda/cuda_kernels.h"

namespace convgrad::cuda {
namespace {

// 256 threads are eight warps. Every supported device runs several such blocks
// per multiprocessor with the 64 registers that the index arithmetic may use.
constexpr int kThreads = 256;
constexpr int kMinBlocksPerMultiprocessor = 4;
// Maximum grid, enough for the largest device. In larger tensors each thread
// handles several elements.
constexpr int64_t kMaxBlocks = 1 << 15;
// Minimum number of elements that a block adds up, and maximum number of blocks
// per sum.
constexpr int64_t kElementsPerPart = 1 << 14;
constexpr int64_t kMaxParts = 256;

__device__ int64_t OffsetOf(const TensorMap& map, const int64_t* index) {
  int64_t group = index[kGroupAxis];
  int64_t outer = index[kOuterAxis];
  int64_t channel = index[kChannelAxis];
  if (map.fused_groups != 0) {
    const int64_t member = group % map.fused_groups;
    group /= map.fused_groups;
    outer += member * map.group_outer;
    channel += member * map.group_channels;
  }
  int64_t offset = map.offset + group * map.stride[kGroupAxis] +
                   outer * map.stride[kOuterAxis];
  if (map.block != 0) {
    offset += channel / map.block * map.block_stride + channel % map.block;
  } else {
    offset += channel * map.stride[kChannelAxis];
  }
  for (int axis = kChannelAxis + 1; axis < kMapAxes; ++axis) {
    offset += index[axis] * map.stride[axis];
  }
  return offset;
}

// Requires a dtype of convolutions, as StoreFloat does.
__device__ float LoadFloat(const void* data, DataType dtype, int64_t offset) {
  if (dtype == DataType::kBF16) {
    return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[offset]);
  }
  if (dtype == DataType::kF16) {
    return __half2float(static_cast<const __half*>(data)[offset]);
  }
  return static_cast<const float*>(data)[offset];
}

__device__ void StoreFloat(void* data, DataType dtype, int64_t offset,
                           float value) {
  if (dtype == DataType::kBF16) {
    static_cast<__nv_bfloat16*>(data)[offset] = __float2bfloat16_rn(value);
  } else if (dtype == DataType::kF16) {
    static_cast<__half*>(data)[offset] = __float2half_rn(value);
  } else {
    static_cast<float*>(data)[offset] = value;
  }
}

// The order of axes from one thread to the next, which is the memory order of
// the destination.
struct Walk {
  int axis[kMapAxes];  // innermost first
  int64_t extent[kMapAxes];
  int64_t count;
};

__device__ void IndexAt(const Walk& walk, int64_t flat, int64_t* index) {
  for (int i = 0; i < kMapAxes; ++i) {
    index[walk.axis[i]] = flat % walk.extent[i];
    flat /= walk.extent[i];
  }
}

// The index of an element in maps of any kind.
struct MappedIndex {
  __device__ MappedIndex(const Walk& walk, int64_t flat) {
    IndexAt(walk, flat, at);
  }
  __device__ int64_t In(const TensorMap& map) const {
    return OffsetOf(map, at);
  }
  int64_t at[kMapAxes];
};

// The index of an element in maps whose axes MergeAxes merged. 32 bits suffice,
// and make the divisions fast.
struct MergedIndex {
  __device__ MergedIndex(const Walk& walk, int64_t flat_index) {
    uint32_t flat = static_cast<uint32_t>(flat_index);
#pragma unroll
    for (int i = 0; i < kMapAxes; ++i) {
      const uint32_t extent = static_cast<uint32_t>(walk.extent[i]);
      if (extent == 1) {
        at[i] = 0;
        continue;
      }
      const uint32_t next = flat / extent;
      at[i] = flat - next * extent;
      flat = next;
    }
  }
  __device__ int64_t In(const TensorMap& map) const {
    int64_t offset = map.offset;
#pragma unroll
    for (int i = 0; i < kMapAxes; ++i) offset += at[i] * map.stride[i];
    return offset;
  }
  uint32_t at[kMapAxes];
};

template <typename Index>
__device__ float LoadFloat(const ElementSource& source, const Index& index) {
  return LoadFloat(source.data, source.dtype, index.In(source.map));
}

template <typename Index>
__global__ void __launch_bounds__(kThreads, kMinBlocksPerMultiprocessor)
    ElementwiseKernel(const __grid_constant__ ElementwiseArguments a,
                      const __grid_constant__ Walk walk) {
  const bool adds = a.bias.data != nullptr || a.residual.data != nullptr;
  const bool plain = !adds && !a.relu && a.scale == 1;
  for (int64_t flat = blockIdx.x * int64_t{kThreads} + threadIdx.x;
       flat < walk.count; flat += gridDim.x * int64_t{kThreads}) {
    const Index index(walk, flat);
    const int64_t to = index.In(a.to_map);
    const bool open = a.mask.data == nullptr || LoadFloat(a.mask, index) > 0;
    if (plain && a.from.dtype == a.to_dtype) {
      const int64_t from = open ? index.In(a.from.map) : 0;
      if (a.to_dtype == DataType::kF32) {
        static_cast<uint32_t*>(a.to)[to] =
            open ? static_cast<const uint32_t*>(a.from.data)[from] : 0;
      } else {
        static_cast<uint16_t*>(a.to)[to] =
            open ? static_cast<const uint16_t*>(a.from.data)[from] : 0;
      }
      continue;
    }
    float value = open ? LoadFloat(a.from, index) : 0;
    if (a.bias.data != nullptr) value += LoadFloat(a.bias, index);
    if (a.residual.data != nullptr) value += LoadFloat(a.residual, index);
    if (a.relu && value < 0) value = 0;
    if (a.scale != 1) value *= a.scale;
    StoreFloat(a.to, a.to_dtype, to, value);
  }
}

int64_t CountOf(const Extents& extents) {
  int64_t count = 1;
  for (int64_t extent : extents) count *= extent;
  return count;
}

// Sorts the axes by the destination's stride, smallest first.
Walk WalkOf(const Extents& extents, const TensorMap& to) {
  Walk walk;
  int64_t stride[kMapAxes];
  for (int i = 0; i < kMapAxes; ++i) {
    walk.axis[i] = i;
    stride[i] = extents[i] == 1 ? 0 : to.stride[i];
  }
  if (to.block != 0) stride[kChannelAxis] = 1;
  std::stable_sort(walk.axis, walk.axis + kMapAxes,
                   [&](int a, int b) { return stride[a] < stride[b]; });
  for (int i = 0; i < kMapAxes; ++i) walk.extent[i] = extents[walk.axis[i]];
  walk.count = CountOf(extents);
  return walk;
}

// The elements of one sum, which `parts` blocks share.
struct SumShape {
  Walk kept;
  Walk summed;
  int64_t parts;
};

SumShape SumShapeOf(const Extents& extents, const Extents& kept,
                    const TensorMap& from) {
  Extents summed = extents;
  for (int i = 0; i < kMapAxes; ++i) {
    if (kept[i] != 1) summed[i] = 1;
  }
  SumShape shape{{}, WalkOf(summed, from), 0};
  // Row-major: the last axis is the innermost.
  for (int i = 0; i < kMapAxes; ++i) {
    shape.kept.axis[i] = kMapAxes - 1 - i;
    shape.kept.extent[i] = kept[kMapAxes - 1 - i];
  }
  shape.kept.count = CountOf(kept);
  shape.parts =
      std::clamp<int64_t>(shape.summed.count / kElementsPerPart, 1, kMaxParts);
  return shape;
}

// Block (part, sum) adds up every parts-th run of kThreads elements. It adds in
// double, as the CPU backend does, so that only the end rounds.
__global__ void __launch_bounds__(kThreads, kMinBlocksPerMultiprocessor)
    PartialSumKernel(const __grid_constant__ BiasSumArguments a,
                     const __grid_constant__ SumShape shape) {
  __shared__ double sums[kThreads];
  for (int64_t sum = blockIdx.x; sum < shape.kept.count; sum += gridDim.x) {
    int64_t kept[kMapAxes];
    IndexAt(shape.kept, sum, kept);
    double total = 0;
    for (int64_t i = blockIdx.y * int64_t{kThreads} + threadIdx.x;
         i < shape.summed.count; i += shape.parts * kThreads) {
      int64_t index[kMapAxes];
      IndexAt(shape.summed, i, index);
      for (int axis = 0; axis < kMapAxes; ++axis) index[axis] += kept[axis];
      total +=
          LoadFloat(a.from.data, a.from.dtype, OffsetOf(a.from.map, index));
    }
    sums[threadIdx.x] = total;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      a.partial_sums[sum * shape.parts + blockIdx.y] = sums[0];
    }
    __syncthreads();
  }
}

// Rounds to odd, so that a following rounding to 16 bits gives the same result
// as rounding the double directly.
__device__ float RoundToOdd(double value) {
  float down = __double2float_rz(value);
  if (static_cast<double>(down) != value && isfinite(down)) {
    down = __int_as_float(__float_as_int(down) | 1);
  }
  return down;
}

__global__ void __launch_bounds__(kThreads)
    FinishSumKernel(const __grid_constant__ BiasSumArguments a, int64_t count,
                    int64_t parts) {
  for (int64_t sum = blockIdx.x * int64_t{kThreads} + threadIdx.x; sum < count;
       sum += gridDim.x * int64_t{kThreads}) {
    double total = 0;
    for (int64_t part = 0; part < parts; ++part) {
      total += a.partial_sums[sum * parts + part];
    }
    float value = __double2float_rn(total);
    if (a.scale != 1) {
      value *= a.scale;
    } else if (a.to_dtype != DataType::kF32) {
      value = RoundToOdd(total);
    }
    StoreFloat(a.to, a.to_dtype, sum, value);
  }
}

unsigned BlocksFor(int64_t count) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

}  // namespace

cudaError_t LaunchElementwise(const ElementwiseArguments& arguments,
                              cudaStream_t stream) {
  const int64_t count = CountOf(arguments.extents);
  if (count == 0) return cudaSuccess;
  ElementwiseArguments merged = arguments;
  // The destination comes first: neighbouring threads write to neighbours.
  TensorMap* const maps[] = {&merged.to_map, &merged.from.map, &merged.mask.map,
                             &merged.bias.map, &merged.residual.map};
  const bool is_plain =
      std::all_of(std::begin(maps), std::end(maps),
                  [](const TensorMap* map) { return IsPlain(*map); });
  if (is_plain && count <= std::numeric_limits<int32_t>::max()) {
    MergeAxes(&merged.extents, maps);
    Walk walk = {{}, {}, count};
    std::copy(merged.extents.begin(), merged.extents.end(), walk.extent);
    ElementwiseKernel<MergedIndex>
        <<<BlocksFor(count), kThreads, 0, stream>>>(merged, walk);
  } else {
    ElementwiseKernel<MappedIndex><<<BlocksFor(count), kThreads, 0, stream>>>(
        arguments, WalkOf(arguments.extents, arguments.to_map));
  }
  return cudaGetLastError();
}

int64_t BiasSumScratchBytes(const Extents& extents, const Extents& kept) {
  const SumShape shape = SumShapeOf(extents, kept, TensorMap());
  return shape.kept.count * shape.parts * static_cast<int64_t>(sizeof(double));
}

cudaError_t LaunchBiasSum(const BiasSumArguments& arguments,
                          cudaStream_t stream) {
  const SumShape shape =
      SumShapeOf(arguments.extents, arguments.kept, arguments.from.map);
  const dim3 grid(static_cast<unsigned>(std::min(shape.kept.count, kMaxBlocks)),
                  static_cast<unsigned>(shape.parts));
  PartialSumKernel<<<grid, kThreads, 0, stream>>>(arguments, shape);
  if (const cudaError_t error = cudaGetLastError()) return error;
  FinishSumKernel<<<BlocksFor(shape.kept.count), kThreads, 0, stream>>>(
      arguments, shape.kept.count, shape.parts);
  return cudaGetLastError();
}

}  // namespace convgrad::cuda

// The kernels of our own: what happens to elements before and after cuDNN. One
// copies, converts, masks and finishes sums between any two layouts, one sums
// over broadcast axes.
#pragma once

#include <cstdint>

#include "backends/cuda/cuda_tensor_map.h"
#include "cuda_runtime_api.h"

namespace convgrad::cuda {

// An operand of an element-wise kernel. Absent if data is null.
struct ElementSource {
  const void* data = nullptr;
  DataType dtype = DataType::kF32;
  TensorMap map;
};

// to = round(scale * relu((from where mask > 0, else 0) + bias + residual)),
// each part only where it is asked for. With none asked for and equal dtypes
// the bits are copied as they are.
struct ElementwiseArguments {
  Extents extents = {};
  ElementSource from;  // never absent
  ElementSource mask;
  ElementSource bias;
  ElementSource residual;
  bool relu = false;  // keeps NaN
  float scale = 1;
  void* to = nullptr;
  DataType to_dtype = DataType::kF32;
  TensorMap to_map;
};

// Enqueues the kernel. Elements of `to` that no index reaches are left alone.
cudaError_t LaunchElementwise(const ElementwiseArguments& arguments,
                              cudaStream_t stream);

// Sums `from` over the axes on which `kept` has extent 1; the same bits every
// time, since who adds what follows from the extents alone.
struct BiasSumArguments {
  Extents extents = {};
  Extents kept = {};
  ElementSource from;
  float scale = 1;
  void* to = nullptr;  // row-major over `kept`
  DataType to_dtype = DataType::kF32;
  double* partial_sums = nullptr;  // BiasSumScratchBytes
};

int64_t BiasSumScratchBytes(const Extents& extents, const Extents& kept);

cudaError_t LaunchBiasSum(const BiasSumArguments& arguments,
                          cudaStream_t stream);

}  // namespace convgrad::cuda

// Launches our CUDA kernels, which process elements before and after cuDNN. One
// copies, converts, masks and finishes sums between any two layouts; one sums
// over broadcast axes.
#pragma once

#include <cstdint>

#include "backends/cuda/cuda_tensor_map.h"
#include "cuda_runtime_api.h"

namespace convgrad::cuda {

// An operand of an element-wise kernel; absent if data is null.
struct ElementSource {
  const void* data = nullptr;
  DataType dtype = DataType::kF32;
  TensorMap map;
};

// Computes to = round(scale * relu((from where mask > 0, else 0) + bias +
// residual)). Absent parts are skipped. Without any part and with equal dtypes
// it copies the bits unchanged.
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

// Enqueues the kernel. Doesn't write elements of `to` without an index.
cudaError_t LaunchElementwise(const ElementwiseArguments& arguments,
                              cudaStream_t stream);

// Sums `from` over the axes on which `kept` has extent 1. Deterministic,
// because the order of additions depends only on the extents.
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

// What oneDNN 3.2 has no right primitive for: the ReLU mask as a select (its
// own multiplies, so that 0 * Inf gives NaN), and the forward's epilogue with a
// ReLU that keeps NaN (its own makes it 0). f32 and bf16, row-major layouts.
//
// Thread-safe; each call uses `threads` threads of the caller's team.
#pragma once

#include <optional>

#include "backends/core/conv_operation.h"

namespace convgrad::onednn {

// Writes masked[i] = output[i] > 0 ? grad[i] : 0, the bits of grad unchanged,
// in grad's layout and dtype. Shapes: both have the same logical dims.
void MaskGradient(int threads, const TensorDescriptor& grad,
                  const void* grad_data, const TensorDescriptor& output,
                  const void* output_data, void* masked);

// What is done to an f32 sum before its one rounding, in this order.
struct Epilogue {
  std::optional<TensorDescriptor> bias;  // dims broadcast to the result's rank
  std::optional<TensorDescriptor> residual;
  bool relu = false;
  float scale = 1;
};

// Writes round(scale * relu(sum + bias + residual)). `sum` is f32 in `result`'s
// layout and may be the result itself if that is f32; null counts as 0.
void ApplyEpilogue(int threads, const Epilogue& epilogue, const float* sum,
                   const void* bias, const void* residual,
                   const TensorDescriptor& result, void* result_data);

// ReLU on rounded values, in place: rounding keeps the sign.
void ReluInPlace(int threads, const TensorDescriptor& tensor, void* data);

// Copies one f32 or bf16 array to another dtype, rounding once.
void ConvertFlat(int threads, DataType from, const void* source, DataType to,
                 void* destination, int64_t count);

}  // namespace convgrad::onednn

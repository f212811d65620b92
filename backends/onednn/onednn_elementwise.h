// What oneDNN 3.2 has no right primitive for: the ReLU mask as a select (its
// own multiplies, so that 0 * Inf gives NaN), and the forward's epilogue with a
// ReLU that keeps NaN (its own makes it 0).
//
// Thread-safe; each call uses `threads` threads of the caller's team.
#pragma once

#include <optional>

#include "backends/core/conv_operation.h"

namespace convgrad::onednn {

// Writes masked[i] = output[i] > 0 ? grad[i] : 0, the bits of grad unchanged,
// in grad's layout and dtype. Requires: the same logical dims; both row-major,
// or one layout for both.
void MaskGradient(int threads, const TensorDescriptor& grad,
                  const void* grad_data, const TensorDescriptor& output,
                  const void* output_data, void* masked);

// What is done to an f32 sum before its one rounding, in this order.
struct Epilogue {
  std::optional<Dims> bias;  // f32, dims broadcast to the result's rank
  std::optional<TensorDescriptor> residual;  // row-major
  bool relu = false;
  float scale = 1;
};

// Writes round(scale * relu(sum + bias + residual)). `sum` is f32 in `result`'s
// layout and may be the result itself if that is f32; null counts as 0.
// Requires: a row-major result, of any dtype.
void ApplyEpilogue(int threads, const Epilogue& epilogue, const float* sum,
                   const float* bias, const void* residual,
                   const TensorDescriptor& result, void* result_data);

// ReLU on rounded values, in place: rounding keeps the sign. Any layout.
void ReluInPlace(int threads, const TensorDescriptor& tensor, void* data);

}  // namespace convgrad::onednn

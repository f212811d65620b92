// What oneDNN 3.2 has no right primitive for: the ReLU mask as a select (its
// own multiplies, so that 0 * Inf gives NaN), and the forward's epilogue with a
// ReLU that keeps NaN (its own makes it 0).
//
// Thread-safe; each call uses `threads` threads of the caller's team.
#pragma once

#include "backends/core/convolution/conv_steps.h"

namespace convgrad::onednn {

// Writes masked[i] = output[i] > 0 ? grad[i] : 0, the bits of grad unchanged,
// in grad's layout and dtype. Requires: the same logical dims; both row-major,
// or one layout for both.
void MaskGradient(int threads, const TensorDescriptor& grad,
                  const void* grad_data, const TensorDescriptor& output,
                  const void* output_data, void* masked);

// Writes round(scale * relu(sum + bias + residual)). `sum` is f32 in `result`'s
// layout and may be the result itself if that is f32; null counts as 0. `bias`
// is f32, whatever its descriptor's dtype. Requires: a row-major result of any
// dtype, and a row-major residual.
void ApplyEpilogue(int threads, const Epilogue& epilogue, const float* sum,
                   const float* bias, const void* residual,
                   const TensorDescriptor& result, void* result_data);

// ReLU on rounded values, in place: rounding keeps the sign. Any layout.
void ReluInPlace(int threads, const TensorDescriptor& tensor, void* data);

}  // namespace convgrad::onednn

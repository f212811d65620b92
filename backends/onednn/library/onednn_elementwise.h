// Implements functions for which oneDNN 3.2 has no correct primitive: the ReLU
// mask as a select, and the forward pass's epilogue with a ReLU that keeps NaN.
// oneDNN's mask multiplies, so 0 * Inf gives NaN, and its ReLU returns 0 for
// NaN.
//
// Thread-safe; each call uses `threads` threads of the caller's team.
#pragma once

#include "backends/core/convolution/conv_steps.h"

namespace convgrad::onednn {

// Writes masked[i] = output[i] > 0 ? grad[i] : 0 with the bits of grad
// unchanged, in grad's layout and dtype. Requires: `output` has the layout and
// dims of `grad`, which may be any.
void MaskGradient(int threads, const TensorDescriptor& grad,
                  const void* grad_data, DataType output_dtype,
                  const void* output, void* masked);

// Writes round(scale * relu(sum + bias + residual)). `sum` is f32 in `result`'s
// layout and may be the result itself if that is f32; null counts as 0. `bias`
// is f32, whatever dtype its descriptor has. Requires: a row-major result of
// any dtype, and a residual of any dtype in the result's layout.
void ApplyEpilogue(int threads, const Epilogue& epilogue, const float* sum,
                   const float* bias, const void* residual,
                   const TensorDescriptor& result, void* result_data);

// Applies ReLU to rounded values in place, which is correct because rounding
// keeps the sign. Any layout.
void ReluInPlace(int threads, const TensorDescriptor& tensor, void* data);

}  // namespace convgrad::onednn

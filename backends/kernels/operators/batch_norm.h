// Computes batch_norm on activations in blocks of channels, alone or fused with
// the following steps: y = activation(norm(x) + addend). The activation is
// none, a ReLU or, without an addend, a ReLU6. Each call reads and writes a
// tensor once.
//
// Thread-safe. Buffers need no alignment. A result may be written in place of
// an operand of the same call (y over x or addend; masked_dy or dx over dy).
#pragma once

#include <cstdint>

#include "backends/kernels/operators/channel_blocks.h"
#include "backends/kernels/operators/pointwise.h"

namespace convgrad {

// One batch_norm. Arrays of doubles have padded_channels() elements.
struct BatchNorm {
  ChannelBlocks blocks;
  // `channels` elements; null stands for ones and zeros.
  const float* gamma = nullptr;
  const float* beta = nullptr;
  double epsilon = 1e-5;
  // Mean and biased variance: of the batch in training, else the running ones.
  const double* mean = nullptr;
  const double* variance = nullptr;
  // True if mean and variance are the batch's; gradients then flow through
  // them.
  bool training = true;
  // True if the gradient sums passed to RunGradientInput are already multiplied
  // by gamma, because several channels share their statistics.
  bool has_weighted_sums = false;
  // BatchNormScratch(blocks) elements that a call may overwrite.
  double* scratch = nullptr;
};

// Returns how many doubles of scratch the calls below need.
int64_t BatchNormScratch(const ChannelBlocks& blocks);

// Writes the mean and the biased variance of each channel of `x` (zero for
// padding, and where there are no elements), summed in double. A channel with
// Inf or NaN has a variance of NaN.
struct Moments {
  double* mean;
  double* variance;
};
void BatchNormStatistics(const ChannelBlocks& blocks, const void* x,
                         double* scratch, RunParts run, Moments moments);

// y = activation(norm(x) + addend), which lets NaN through. Rounded once.
struct BatchNormForward {
  const void* x;
  const void* addend = nullptr;  // like x; null: none
  Activation activation = Activation::kNone;
  void* y;
};
void RunForward(const BatchNorm& norm, const BatchNormForward& tensors,
                RunParts run);

// Writes the `channels` scales and shifts with norm(x + bias) = scale * x +
// shift, for a convolution whose weights are multiplied by the scale. A null
// `bias` means zeros.
void FoldNorm(const BatchNorm& norm, const float* bias, float* scale,
              float* shift);

// Arguments of the first of two passes that compute RunForward's gradients. An
// element of dy counts if the activation's operand was within its limits or
// NaN. Without an addend, both passes compute that operand again from x.
struct BatchNormGradientSums {
  const void* dy;
  const void* x;
  // The activation of a forward without an addend.
  Activation activation = Activation::kNone;
  // Only for a forward with an addend and a ReLU: its result; a tensor to add
  // to dy first, with rounding, or null; and the destination of the masked dy,
  // which is the addend's gradient and the second pass's dy.
  const void* y = nullptr;
  const void* more_dy = nullptr;
  void* masked_dy = nullptr;
};
// The sums of dy * xhat and of dy, which are the gradients of gamma and beta.
// Gradients through the batch's statistics need them as well.
struct BatchNormSums {
  double* dy_xhat;
  double* dy;
};
void RunGradientSums(const BatchNorm& norm,
                     const BatchNormGradientSums& tensors, RunParts run,
                     BatchNormSums sums);

struct BatchNormBackward {
  const void* dy;
  const void* x;
  // The activation of the forward, unless the forward has an addend.
  Activation activation = Activation::kNone;
  void* dx;
};
// Writes dx. `sums` may be null unless `norm.training`.
void RunGradientInput(const BatchNorm& norm, const BatchNormBackward& tensors,
                      BatchNormSums sums, RunParts run);

}  // namespace convgrad

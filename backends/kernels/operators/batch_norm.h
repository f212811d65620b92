// batch_norm on activations in blocks of channels, alone or with what follows
// it: y = activation(norm(x) + addend), where the activation is none, a ReLU
// or, without an addend, a ReLU6. Each call reads and writes a tensor once.
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
  // Of the batch (training) or the running ones; the biased variance.
  const double* mean = nullptr;
  const double* variance = nullptr;
  // Whether mean and variance are the batch's, so that gradients flow through
  // them.
  bool training = true;
  // Whether the sums of gradients that RunGradientInput is given have been
  // multiplied by gamma: where several channels share their statistics.
  bool has_weighted_sums = false;
  // BatchNormScratch(blocks) elements, for the time of a call.
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

// Writes the `channels` scales and shifts with which norm(x + bias) is
// scale * x + shift: what a batch_norm of running statistics is to a
// convolution whose weights are scaled. A null `bias` stands for zeros.
void FoldNorm(const BatchNorm& norm, const float* bias, float* scale,
              float* shift);

// The gradients of RunForward take two passes. Of dy counts what the activation
// let through, where its operand was within its limits or NaN. Without an
// addend both passes find that out from x, as the forward did.
struct BatchNormGradientSums {
  const void* dy;
  const void* x;
  // Of a forward without an addend.
  Activation activation = Activation::kNone;
  // Of a forward with an addend and a ReLU: its result; what is added to dy
  // first, and rounded, or null; and where the masked dy goes, which is the
  // addend's gradient, and dy of the second pass.
  const void* y = nullptr;
  const void* more_dy = nullptr;
  void* masked_dy = nullptr;
};
// Sums over dy * xhat and over dy: the gradients of gamma and beta. They are
// also what gradients through the batch's statistics need.
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
  // Of a forward without an addend.
  Activation activation = Activation::kNone;
  void* dx;
};
// Writes dx. `sums` may be null unless `norm.training`.
void RunGradientInput(const BatchNorm& norm, const BatchNormBackward& tensors,
                      BatchNormSums sums, RunParts run);

}  // namespace convgrad

// batch_norm on activations in blocks of channels, alone or with what follows
// it: y = relu(norm(x) + addend). Each call reads and writes a tensor once.
//
// Thread-safe. Buffers need no alignment. A result may be written in place of
// an operand of the same call (y over x or addend; dx or d_addend over dy).
#pragma once

#include <cstdint>

#include "backends/kernels/channel_blocks.h"

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

// y = norm(x) + addend, then ReLU, which lets NaN through. Rounded once.
struct BatchNormForward {
  const void* x;
  const void* addend = nullptr;  // like x; null: none
  bool relu = false;
  void* y;
};
void RunForward(const BatchNorm& norm, const BatchNormForward& tensors,
                RunParts run);

// The gradients of RunForward. Of dy counts what the ReLU let through: where
// `y`, the forward's result, is positive or NaN.
struct BatchNormBackward {
  const void* dy;
  const void* x;
  const void* y = nullptr;  // null: the forward had no ReLU
  void* dx = nullptr;
  void* d_addend = nullptr;  // the masked dy; null: not wanted
};
// Sums over dy * xhat and over dy: the gradients of gamma and beta. They are
// also what gradients through the batch's statistics need.
struct BatchNormSums {
  double* dy_xhat;
  double* dy;
};
void RunGradientSums(const BatchNorm& norm, const BatchNormBackward& tensors,
                     RunParts run, BatchNormSums sums);
// Writes dx and, if wanted, d_addend. `sums` may be null unless
// `norm.training`.
void RunGradientInput(const BatchNorm& norm, const BatchNormBackward& tensors,
                      BatchNormSums sums, RunParts run);

}  // namespace convgrad

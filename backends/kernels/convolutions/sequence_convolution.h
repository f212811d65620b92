// `ConvolveSequences` computes convolutions along one axis, and
// `AddUpSequenceGradient` the gradient of their weights. oneDNN has fast ones
// for short kernels of channels that fill blocks.
#pragma once

#include <cstdint>

#include "backends/kernels/convolutions/sequence.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// All tensors are f32. Activations are in blocks, and begin at a multiple of 64
// bytes, as all other buffers do. The bits depend on the shape alone. Padding
// isn't multiplied, so that only elements of the input reach sums. Thread-safe.

// The weights as ConvolveSequences reads them, with the bias.
struct SequenceWeights {
  // Row-major: output channel, input channel, tap.
  const float* weights = nullptr;
  // Whether `weights` are those of the shape's mirror.
  bool is_mirrored = false;
  const float* bias = nullptr;  // null: none
};

// Returns the number of floats.
int64_t ArrangedFloats(const SequenceShape& shape);
void ArrangeWeights(const SequenceShape& shape, const SequenceWeights& from,
                    RunParts run, float* arranged);

// Writes the output, of channels [out_channels, out_blocks() * block) zeros.
void ConvolveSequences(const SequenceShape& shape, const float* input,
                       const float* arranged, RunParts run, float* output);

// Writes the gradient of the weights, row-major. `sums` has
// ArrangedFloats(shape) elements that the call may overwrite. Sums of 128
// products are added up.
void AddUpSequenceGradient(const SequenceShape& shape, const float* input,
                           const float* gradient, RunParts run, float* sums,
                           float* weight_gradient);

}  // namespace convgrad

// `ConvolveSequences` computes convolutions along one axis, and
// `AddUpSequenceGradient` the gradient of their weights. oneDNN has fast ones
// for short kernels of channels that fill blocks. `ConvolveSequencesDepthwise`
// computes those with one filter per channel, for which oneDNN has matrix
// products alone.
#pragma once

#include <cstdint>
#include <utility>

#include "backends/kernels/convolutions/conv_axis.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// A convolution of sequences whose channels are in blocks (ChannelBlocks).
struct SequenceShape {
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;
  int64_t block = 8;  // 8 or 16 channels
  ConvAxis axis;

  int64_t in_blocks() const { return (in_channels + block - 1) / block; }
  int64_t out_blocks() const { return (out_channels + block - 1) / block; }
};

// Returns the shape whose output is the gradient of the other's input. Its
// kernel is the other's in reverse. Requires: stride 1.
inline SequenceShape MirrorOf(SequenceShape shape) {
  ConvAxis& axis = shape.axis;
  std::swap(shape.in_channels, shape.out_channels);
  std::swap(axis.in, axis.out);
  axis.pad = (axis.kernel - 1) * axis.dilation - axis.pad;
  return shape;
}

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

// Does the same where each channel has a filter: `weights` are row-major,
// channel and tap. `arranged` has DepthwiseFloats(shape) elements that the call
// may overwrite. Requires: in_channels == out_channels.
int64_t DepthwiseFloats(const SequenceShape& shape);
void ConvolveSequencesDepthwise(const SequenceShape& shape, const float* input,
                                const SequenceWeights& weights, RunParts run,
                                float* arranged, float* output);

// Writes the gradient of the weights, row-major. `sums` has
// ArrangedFloats(shape) elements that the call may overwrite. Sums of 128
// products are added up.
void AddUpSequenceGradient(const SequenceShape& shape, const float* input,
                           const float* gradient, RunParts run, float* sums,
                           float* weight_gradient);

}  // namespace convgrad

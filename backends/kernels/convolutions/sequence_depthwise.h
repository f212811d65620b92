// `ConvolveSequencesDepthwise` computes convolutions along one axis with one
// filter per channel, for which oneDNN has matrix products alone.
#pragma once

#include "backends/kernels/convolutions/sequence.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// Does what ConvolveSequences does (sequence_convolution.h), where each output
// channel has the weights of one input channel: `weights` are row-major,
// channel and tap. If `is_mirrored`, they are those of the shape's mirror.
// `bias` may be null. `arranged` has DepthwiseFloats(shape) elements that the
// call may overwrite. Requires: in_channels == out_channels.
int64_t DepthwiseFloats(const SequenceShape& shape);
struct DepthwiseWeights {
  const float* weights = nullptr;
  bool is_mirrored = false;
  const float* bias = nullptr;
  float* arranged = nullptr;
};
void ConvolveSequencesDepthwise(const SequenceShape& shape, const float* input,
                                const DepthwiseWeights& weights, RunParts run,
                                float* output);

}  // namespace convgrad

// `RunCrossEntropy` computes cross_entropy. The forward also computes the
// gradient, because it has the softmax.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "backends/core/program/program.h"
#include "backends/kernels/operators/channel_blocks.h"
#include "backends/kernels/operators/softmax.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Number of positions whose losses one part adds up.
inline constexpr int64_t kCrossEntropyChunk = 256;

struct CrossEntropyShape {
  ChannelBlocks logits;
  double label_smoothing;
  int64_t ignore_index;
  bool is_mean;
  // Divisor of the mean; 0: the sum of the targets' weights.
  double denominator;

  int64_t positions() const { return logits.batch * logits.spatial; }
  int64_t chunks() const {
    return (positions() + kCrossEntropyChunk - 1) / kCrossEntropyChunk;
  }
  // Return the offset of a position's first channel, and from there the offset
  // of block `b`.
  int64_t Offset(int64_t position) const {
    const int64_t n = position / logits.spatial;
    const int64_t s = position % logits.spatial;
    return (n * logits.block_count() * logits.spatial + s) * logits.block;
  }
  int64_t BlockOffset(int64_t b) const {
    return b * logits.spatial * logits.block;
  }
  // Returns the length of a row of channels for Exponentiate.
  int64_t row_size() const {
    constexpr int64_t kLanes = kSoftmaxLanes;
    return (logits.padded_channels() + kLanes - 1) / kLanes * kLanes;
  }
};

struct CrossEntropyBuffers {
  BufferId logits, target, weight;
  BufferId chunks;  // a double each
  BufferId rows;    // by chunk, row_size() doubles
  BufferId smooth;  // a double for each channel
  BufferId loss;
  BufferId gradient = kNoBuffer;  // like the logits, in f32
};

// Writes the loss, and the gradient if it has a buffer.
void RunCrossEntropy(const CrossEntropyShape& shape,
                     const CrossEntropyBuffers& buffers,
                     const RunContext& context);

// Checks the targets before the run reads them again. This is safe because
// indices don't change during a run (RunBuffers).
// Errors: kInvalidArgument naming the first target that isn't a class.
absl::Status CheckTargets(const ProgramStep& step,
                          const CrossEntropyShape& shape,
                          const int64_t* targets);

}  // namespace convgrad::onednn

// `RunCrossEntropy` computes cross_entropy of class indices, and
// `RunSoftCrossEntropy` of probabilities. The forward also computes the
// gradient of the logits, because it has the softmax.
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
  // If false, the target has a probability for each logit, and lies like them.
  bool has_indices;
  double label_smoothing;
  int64_t ignore_index;
  bool is_mean;
  // Divisor of the mean. 0: the sum of the targets' weights; of probabilities,
  // the number of positions.
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
  // Returns the number of doubles that a chunk has in
  // CrossEntropyBuffers::rows.
  int64_t rows_size() const {
    return has_indices ? row_size() : 3 * row_size();
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
  // By chunk, row_size() doubles; of probabilities, three times as many.
  BufferId rows;
  // A double for each channel. Of probabilities: for each position the
  // logarithm of the sum of the exponentials.
  BufferId doubles;
  BufferId loss;
  BufferId gradient = kNoBuffer;  // like the logits, in f32
};

// Writes the loss, and the gradient if it has a buffer.
void RunCrossEntropy(const CrossEntropyShape& shape,
                     const CrossEntropyBuffers& buffers,
                     const RunContext& context);

// Writes the loss, the logarithms of the sums, and the gradient of the logits
// if it has a buffer.
void RunSoftCrossEntropy(const CrossEntropyShape& shape,
                         const CrossEntropyBuffers& buffers,
                         const RunContext& context);

// Writes the gradient of the target to `target_gradient`, times the loss's own
// gradient, `loss_gradient`. Requires: RunSoftCrossEntropy has run.
void RunTargetGradient(const CrossEntropyShape& shape,
                       const CrossEntropyBuffers& buffers,
                       BufferId loss_gradient, BufferId target_gradient,
                       const RunContext& context);

// Checks the targets before the run reads them again. This is safe because
// indices don't change during a run (RunBuffers).
// Errors: kInvalidArgument naming the first target that isn't a class.
absl::Status CheckTargets(const ProgramStep& step,
                          const CrossEntropyShape& shape,
                          const int64_t* targets);

}  // namespace convgrad::onednn

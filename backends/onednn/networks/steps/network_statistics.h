// The running statistics of a batch_norm.
#pragma once

#include "backends/kernels/operators/channel_blocks.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Before and after a run; kNoBuffer where there are none.
struct RunningStatistics {
  BufferId mean, variance, count;
  BufferId new_mean = kNoBuffer;
  BufferId new_variance = kNoBuffer;
  BufferId new_count = kNoBuffer;
  double momentum;
  // Instead of the momentum: all runs count alike.
  bool is_cumulative;
};

// The batch's own, in double: the variance is the biased one.
struct BatchStatistics {
  BufferId mean, variance;
};

// Writes the new running statistics by PyTorch's formulas: of the unbiased
// variance; the cumulative average counts this run.
void UpdateStatistics(const RunContext& context, const ChannelBlocks& blocks,
                      const BatchStatistics& batch,
                      const RunningStatistics& running);

}  // namespace convgrad::onednn

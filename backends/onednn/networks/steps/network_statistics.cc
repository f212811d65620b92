#include "backends/onednn/networks/steps/network_statistics.h"

namespace convgrad::onednn {

void UpdateStatistics(const RunContext& context, const ChannelBlocks& blocks,
                      const BatchStatistics& batch,
                      const RunningStatistics& running) {
  const int64_t before =
      running.count == kNoBuffer ? 0 : *context.Read<int64_t>(running.count);
  if (running.new_count != kNoBuffer) {
    *context.Write<int64_t>(running.new_count) = before + 1;
  }
  const double factor = running.is_cumulative
                            ? 1 / static_cast<double>(before + 1)
                            : running.momentum;
  const auto elements = static_cast<double>(blocks.batch * blocks.spatial);
  const auto update = [&](BufferId from, BufferId to, BufferId of_batch,
                          double correction) {
    if (to == kNoBuffer) return;
    for (int64_t c = 0; c < blocks.channels; ++c) {
      const double now = context.Read<double>(of_batch)[c] * correction;
      const double old = context.Read<float>(from)[c];
      context.Write<float>(to)[c] =
          static_cast<float>(old * (1 - factor) + now * factor);
    }
  };
  update(running.mean, running.new_mean, batch.mean, 1);
  update(running.variance, running.new_variance, batch.variance,
         elements / (elements - 1));
}

}  // namespace convgrad::onednn

#include "backends/onednn/networks/schedule/network_bias_gradient.h"

#include "backends/kernels/operators/batch_norm.h"
#include "backends/kernels/operators/channel_scale.h"

namespace convgrad::onednn {

void AddBiasGradient(absl::string_view kind, const NetworkTensor& dy,
                     BufferId gradient, Schedule* schedule) {
  const ChannelBlocks blocks = dy.blocks;
  const int64_t padded = blocks.padded_channels();
  // Sums, unused sums of squares, and the kernel's scratch.
  const BufferId sums =
      schedule->AddArray<double>(2 * padded + BatchNormScratch(blocks));
  schedule->Add(
      {.kind = kind,
       .reads = {dy.buffer},
       .writes = {gradient, sums},
       .function = [=, from = dy.buffer](const RunContext& context) {
         auto* sum = context.Write<double>(sums);
         SumChannels(blocks, context.At(from), nullptr, sum + 2 * padded,
                     context.parts(), {sum, sum + padded});
         for (int64_t c = 0; c < blocks.channels; ++c) {
           context.Write<float>(gradient)[c] = static_cast<float>(sum[c]);
         }
       }});
}

}  // namespace convgrad::onednn

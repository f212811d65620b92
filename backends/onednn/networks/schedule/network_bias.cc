#include "backends/onednn/networks/schedule/network_bias.h"

#include <algorithm>

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

void AddBias(BufferId bias, const NetworkTensor& x, const NetworkTensor& y,
             Schedule* schedule) {
  const ChannelBlocks blocks = x.blocks;
  const int64_t padded = blocks.padded_channels();
  // Center, scale and shift.
  const BufferId numbers = schedule->AddArray<float>(3 * padded);
  schedule->Add(
      {.kind = "conv forward",
       .reads = {bias, x.buffer},
       .writes = {y.buffer, numbers},
       .function = [=, from = x.buffer, to = y.buffer,
                    dtype = y.blocks.dtype](const RunContext& context) {
         auto* center = context.Write<float>(numbers);
         std::fill_n(center, 3 * padded, 0.0f);
         std::fill_n(center + padded, blocks.channels, 1.0f);
         std::copy_n(context.Read<float>(bias), blocks.channels,
                     center + 2 * padded);
         ScaleChannels(
             blocks, {center, center + padded, center + 2 * padded},
             {.x = context.At(from), .y = context.At(to), .y_dtype = dtype},
             context.parts());
       }});
}

}  // namespace convgrad::onednn

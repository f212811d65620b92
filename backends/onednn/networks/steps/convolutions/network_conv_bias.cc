#include "backends/onednn/networks/steps/convolutions/network_conv_bias.h"

#include <algorithm>

#include "backends/kernels/operators/channel_scale.h"

namespace convgrad::onednn {

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

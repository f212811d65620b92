#include "backends/onednn/networks/schedule/network_bias.h"

#include <algorithm>

#include "backends/kernels/operators/channel_sums.h"
#include "backends/kernels/operators/combine.h"

namespace convgrad::onednn {

void AddBiasGradient(absl::string_view kind, const NetworkTensor& dy,
                     BufferId gradient, Schedule* schedule) {
  const ChannelBlocks blocks = dy.blocks;
  const int64_t padded = blocks.padded_channels();
  const BufferId sums =
      schedule->AddArray<double>(padded + SumScratch(blocks, 1));
  schedule->Add(kind, {dy.buffer}, {gradient, sums},
                [=, from = dy.buffer](const RunContext& context) {
                  auto* sum = context.Write<double>(sums);
                  SumTerms(blocks, {.a = context.At(from)}, sum + padded,
                           context.parts(), sum, nullptr);
                  for (int64_t c = 0; c < blocks.channels; ++c) {
                    context.Write<float>(gradient)[c] =
                        static_cast<float>(sum[c]);
                  }
                });
}

void AddBias(BufferId bias, const NetworkTensor& y, Schedule* schedule) {
  const ChannelBlocks blocks = y.blocks;
  const int64_t padded = blocks.padded_channels();
  const BufferId numbers = schedule->AddArray<float>(padded);
  schedule->Add(
      "conv forward", {bias, y.buffer}, {y.buffer, numbers},
      [=, y = y.buffer](const RunContext& context) {
        auto* shifts = context.Write<float>(numbers);
        std::fill_n(shifts, padded, 0.0F);
        std::copy_n(context.Read<float>(bias), blocks.channels, shifts);
        Combine(blocks, Combination::kAdd,
                {.a = context.At(y), .y = context.At(y), .numbers = shifts},
                context.parts());
      });
}

}  // namespace convgrad::onednn

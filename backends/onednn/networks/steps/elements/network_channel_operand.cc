#include "backends/onednn/networks/steps/elements/network_channel_operand.h"

namespace convgrad::onednn {

BufferId AddChannelNumbers(absl::string_view kind, const NetworkTensor& operand,
                           const ChannelBlocks& whole, Schedule* schedule) {
  const int64_t padded = whole.padded_channels();
  const BufferId numbers =
      schedule->AddArray<float>(operand.blocks.batch * padded);
  schedule->Add(
      {.kind = kind,
       .reads = {operand.buffer},
       .writes = {numbers},
       .function = [=, channels = whole.channels, from = operand.blocks,
                    b = operand.buffer](const RunContext& context) {
         for (int64_t i = 0; i < from.batch * padded; ++i) {
           const int64_t n = i / padded, c = i % padded;
           const int64_t at =
               n * from.padded_channels() + (from.channels == 1 ? 0 : c);
           const float value =
               c < channels ? static_cast<float>(LoadAsDouble(
                                  from.dtype,
                                  context.At(b) + at * ByteSizeOf(from.dtype)))
                            : 0;
           context.Write<float>(numbers)[i] = value;
         }
       }});
  return numbers;
}

void StoreChannelSums(const double* sums, int64_t channels,
                      const ChannelBlocks& operand, std::byte* image) {
  double total = 0;
  for (int64_t c = 0; c < channels; ++c) total += sums[c];
  for (int64_t c = 0; c < operand.padded_channels(); ++c) {
    const double value =
        c >= operand.channels ? 0 : (operand.channels == 1 ? total : sums[c]);
    StoreRounded(operand.dtype, value, image + c * ByteSizeOf(operand.dtype));
  }
}

}  // namespace convgrad::onednn

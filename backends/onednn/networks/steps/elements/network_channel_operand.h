// These functions handle an operand that has one number per channel, or per
// image and channel, beside an operand that has all elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Appends a step of the name `kind` that spreads the operand's numbers over the
// channels of `whole`. Returns their buffer: f32, by image of the operand and
// padded channel of `whole`; 0 beyond the channels.
BufferId AddChannelNumbers(absl::string_view kind, const NetworkTensor& operand,
                           const ChannelBlocks& whole, Schedule* schedule);

// Writes one image of the operand's gradient: the sums of `channels` channels,
// or their total if the operand has one channel.
void StoreChannelSums(const double* sums, int64_t channels,
                      const ChannelBlocks& operand, std::byte* image);

}  // namespace convgrad::onednn

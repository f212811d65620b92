// An operand that is repeated along any axes of a value, or that has one number
// per channel, or per image and channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "backends/kernels/operators/combine.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Elements that lie side by side both in a repeated operand and in rows of all
// elements, so that kernels can read the operand without repeating it in
// memory.
struct RepeatedRuns {
  int64_t length = 0;             // of a run
  int64_t count = 0;              // of runs in the rows
  std::vector<StridedAxis> axes;  // number the runs in the operand
};

// Returns the runs of an operand of dims `from` in rows of dims `to`; nullopt
// if they are so short that repeating the operand in memory takes less time.
std::optional<RepeatedRuns> RunsOf(const Dims& from, const Dims& to);

// Calls piece(rows, operand, count) for pieces of all runs, on the run's team:
// the offsets of the first element in the rows and in the operand, and the
// number of elements.
void ForRuns(const RepeatedRuns& runs, const RunContext& context,
             absl::FunctionRef<void(int64_t, int64_t, int64_t)> piece);

// Writes y, the combination of rows a and of the repeated operand b. Requires:
// no numbers.
void CombineRuns(const RepeatedRuns& runs, Combination combination,
                 const Combined& tensors, DataType dtype,
                 const RunContext& context);

// Appends a step that repeats the value to the dims and the form of `like`.
// Returns the result.
BufferId AddRepeated(const std::string& value, const NetworkTensor& like,
                     NetworkBuilder* builder);

// Appends a step that sums the gradient of the repeated value to the value's
// gradient.
void AddSumsOfRepeated(const NetworkTensor& gradient, const std::string& value,
                       NetworkBuilder* builder);

// Appends a step of the name `kind` that spreads the operand's numbers over the
// channels of `whole`. Returns their buffer: f32, by image of the operand and
// padded channel of `whole`; 0 beyond the channels.
BufferId AddChannelNumbers(absl::string_view kind, const NetworkTensor& operand,
                           const ChannelBlocks& whole, Schedule* schedule);

// Does the same for one number, of all images and channels.
BufferId AddChannelNumbers(absl::string_view kind, float number,
                           const ChannelBlocks& whole, Schedule* schedule);

// Writes one image of the operand's gradient: the sums of `channels` channels,
// or their total if the operand has one channel.
void StoreChannelSums(const double* sums, int64_t channels,
                      const ChannelBlocks& operand, std::byte* image);

}  // namespace convgrad::onednn

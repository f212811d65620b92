#include "backends/onednn/networks/schedule/network_guard.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "backends/kernels/operators/nonfinite.h"

namespace convgrad::onednn {
namespace {

// Appends a step that writes the result of `holds` to an I32. Returns the I32.
BufferId AddCondition(std::vector<BufferId> reads,
                      std::function<bool(const RunContext&)> holds,
                      Schedule* schedule) {
  const BufferId condition = schedule->AddArray<int32_t>(1);
  schedule->Add({.kind = "fusion checks",
                 .reads = std::move(reads),
                 .writes = {condition},
                 .function = [condition, holds = std::move(holds)](
                                 const RunContext& context) {
                   *context.Write<int32_t>(condition) = holds(context) ? 1 : 0;
                 }});
  return condition;
}

}  // namespace

BufferId AddFiniteCheck(DataType dtype, BufferId values, Schedule* schedule) {
  const int64_t count = schedule->buffers()[values].bytes / ByteSizeOf(dtype);
  return AddCondition(
      {values},
      [=](const RunContext& context) {
        return CountNonfinite(dtype, context.At(values), count) > 0;
      },
      schedule);
}

bool IsSafeRange(double range) {
  // The range ignores rounding, so this leaves a margin. Rounding changes a sum
  // of many elements by far less than a factor of 4. bf16 may enlarge the
  // values and weights of each of a thousand steps by 1/256.
  constexpr double kMost = std::numeric_limits<float>::max() * 0x1p-20;
  return range < kMost;  // false for NaN
}

BufferId AddRangeCheck(BufferId range, Schedule* schedule) {
  return AddCondition(
      {range},
      [=](const RunContext& context) {
        return !IsSafeRange(*context.Read<double>(range));
      },
      schedule);
}

BufferId AddAnyOf(const std::vector<BufferId>& conditions, Schedule* schedule) {
  return AddCondition(
      conditions,
      [=](const RunContext& context) {
        return std::any_of(conditions.begin(), conditions.end(),
                           [&](BufferId condition) {
                             return *context.Read<int32_t>(condition) != 0;
                           });
      },
      schedule);
}

bool AreSafeFactors(absl::Span<const float> scales,
                    absl::Span<const float> shifts) {
  constexpr float kLeast = 0x1p-40F, kMost = 0x1p40F;
  return std::all_of(scales.begin(), scales.end(),
                     [](float scale) {
                       const float magnitude = std::abs(scale);
                       return scale == 0 ||
                              (magnitude >= kLeast && magnitude <= kMost);
                     }) &&
         std::all_of(shifts.begin(), shifts.end(),
                     [](float shift) { return std::isfinite(shift); });
}

}  // namespace convgrad::onednn

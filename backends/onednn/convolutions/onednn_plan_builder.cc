#include "backends/onednn/convolutions/onednn_plan_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/onednn/execution/onednn_scheduled_plan.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

PlacedSchedule Place(Schedule schedule) {
  MemoryMap memory =
      PlaceBuffers(schedule, std::vector<bool>(schedule.buffers().size()));
  PreparedParts prepared =
      FindPrepared(schedule, {PositionOf(Operand::kWeight)});
  return {std::move(schedule), std::move(memory), {}, std::move(prepared)};
}

std::vector<BufferId> BuffersOf(const std::vector<Location>& locations) {
  std::vector<BufferId> buffers;
  for (const Location& location : locations) buffers.push_back(location.buffer);
  return buffers;
}

}  // namespace

PlanBuilder::PlanBuilder(size_t results, int threads) : threads_(threads) {
  for (size_t i = 0; i < kOperandCount; ++i) {
    schedule_.AddBuffer({0, Area::kOperand, i});
  }
  for (size_t i = 0; i < results; ++i) {
    schedule_.AddBuffer({0, Area::kResult, i});
  }
}

void PlanBuilder::Add(const std::vector<Location>& reads,
                      const std::vector<Location>& writes,
                      std::function<void(const RunContext&)> function,
                      absl::string_view kind) {
  schedule_.Add({.kind = kind,
                 .reads = BuffersOf(reads),
                 .writes = BuffersOf(writes),
                 .function = std::move(function)});
}

void PlanBuilder::AppendImplementation(absl::string_view word) {
  absl::StrAppend(&implementation_, implementation_.empty() ? "" : " ", word);
}

absl::StatusOr<std::unique_ptr<Plan>> PlanBuilder::MakePlan(
    PlanBuilder builder) {
  return Guard("planning", [&]() -> absl::StatusOr<std::unique_ptr<Plan>> {
    return std::make_unique<ScheduledPlan>(Place(std::move(builder.schedule_)),
                                           std::move(builder.implementation_),
                                           builder.threads_);
  });
}

}  // namespace convgrad::onednn

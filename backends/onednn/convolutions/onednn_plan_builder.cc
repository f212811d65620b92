#include "backends/onednn/convolutions/onednn_plan_builder.h"

#include <algorithm>
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

class PlanBuilder::BuiltPlan final : public ScheduledPlan {
 public:
  explicit BuiltPlan(PlanBuilder builder)
      : ScheduledPlan(Place(std::move(builder.schedule_)), builder.threads_),
        gathers_(std::move(builder.gathers_)),
        implementation_(std::move(builder.implementation_)) {}

  absl::string_view implementation() const override { return implementation_; }

  const OperandGather* gather(size_t position) const override {
    if (!gathers_[position]) return nullptr;
    // A second step that reads the operand needs it unchanged.
    std::ptrdiff_t readers = 0;
    for (const Step& step : steps()) {
      readers += std::count(step.reads.begin(), step.reads.end(),
                            OperandAt(position).buffer);
    }
    return readers == 1 ? &*gathers_[position] : nullptr;
  }

 private:
  const std::array<std::optional<ScatteredReorder>, kOperandCount> gathers_;
  const std::string implementation_;
};

PlanBuilder::PlanBuilder(size_t results, int threads) : threads_(threads) {
  for (size_t i = 0; i < kOperandCount; ++i) {
    schedule_.AddBuffer({0, Area::kOperand, i});
  }
  for (size_t i = 0; i < results; ++i) {
    schedule_.AddBuffer({0, Area::kResult, i});
  }
}

bool PlanBuilder::CanGather(const Location& location) const {
  return location.buffer < kOperandCount && !gathers_[location.buffer];
}

Location PlanBuilder::AllocateGathered(const Location& operand,
                                       ScatteredReorder gather) {
  const auto position = static_cast<size_t>(operand.buffer);
  const int64_t bytes = gather.destination_bytes();
  gathers_[position] = std::move(gather);
  return schedule_.AddBuffer({bytes, Area::kGathered, position});
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
    return std::make_unique<BuiltPlan>(std::move(builder));
  });
}

}  // namespace convgrad::onednn

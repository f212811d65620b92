// Tests which steps a run with prepared weights leaves out, and where steps
// find their bytes.
#include "backends/onednn/execution/onednn_prepared.h"

#include <memory>
#include <utility>
#include <vector>

#include "backends/onednn/execution/onednn_scheduled_plan.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

// A plan of two operands, of which the second one is a parameter, and a result,
// each of one number.
class PreparedSteps : public testing::Test {
 protected:
  // Appends a step that writes the sum of `reads` and `more` to `to`.
  void AddSum(const std::vector<Location>& reads, int more,
              const Location& to) {
    schedule_.Add("", reads, {to}, [=](const RunContext& at) {
      int sum = more;
      for (const Location& read : reads) sum += *at.Read<int>(read);
      *at.Write<int>(to) = sum;
    });
  }

  std::unique_ptr<Plan> MakePlan() {
    MemoryMap memory =
        PlaceBuffers(schedule_, std::vector<bool>(schedule_.buffers().size()));
    PreparedParts prepared = FindPrepared(schedule_, {1});
    return std::make_unique<ScheduledPlan>(
        PlacedSchedule{
            std::move(schedule_), std::move(memory), {}, std::move(prepared)},
        "test", 1);
  }
  void Run(const Plan& plan) {
    std::vector<std::byte> scratch(plan.scratch_bytes());
    buffers_.scratch = absl::MakeSpan(scratch);
    const auto times = plan.Run(buffers_);
    EXPECT_TRUE(times.ok()) << times.status();
    EXPECT_TRUE(times->steps.empty());
  }

  Schedule schedule_;
  const BufferId input_ = schedule_.AddBuffer({0, Area::kOperand, 0});
  const BufferId weight_ = schedule_.AddBuffer({0, Area::kOperand, 1});
  const BufferId result_ = schedule_.AddBuffer({0, Area::kResult, 0});
  int operands_[2] = {1, 10};
  int number_ = 0;  // the result
  RunBuffers buffers_ = [this] {
    RunBuffers buffers(2);
    buffers.operands = {&operands_[0], &operands_[1]};
    buffers.results = {&number_};
    return buffers;
  }();
};

TEST_F(PreparedSteps, StepsFindTheCallersTensorsAndTheirOwn) {
  const Location first = schedule_.AddBuffer(64);
  const Location second = schedule_.AddBuffer(64);
  AddSum({input_}, 2, first.At(4));
  AddSum({first.At(4)}, 3, second);
  AddSum({second, first.At(4)}, 0, result_);
  Run(*MakePlan());
  EXPECT_EQ(number_, 3 + 6);
}

TEST_F(PreparedSteps, LeavesOutWhatAPreparedWeightIsMadeBy) {
  const Location on_the_way = schedule_.AddBuffer(64);
  const Location prepared = schedule_.AddBuffer(64);
  AddSum({weight_}, 1, on_the_way);
  AddSum({on_the_way}, 1, prepared);
  AddSum({prepared, input_}, 0, result_);
  const auto plan = MakePlan();
  EXPECT_EQ(plan->prepared_weight_bytes(), 64);
  Run(*plan);
  EXPECT_EQ(number_, 13);
  int kept[16] = {};
  buffers_.prepared_weight =
      absl::MakeSpan(reinterpret_cast<std::byte*>(kept), sizeof(kept));
  Run(*plan);
  EXPECT_EQ(number_, 13);
  EXPECT_EQ(kept[0], 12);
  buffers_.weight_is_prepared = true;
  buffers_.operands[1] = nullptr;
  kept[0] = 7;
  Run(*plan);
  EXPECT_EQ(number_, 8);
}

TEST_F(PreparedSteps, WhatIsWrittenTwiceIsNotPrepared) {
  const Location zeroed = schedule_.AddBuffer(64);
  AddSum({}, 0, zeroed);
  AddSum({zeroed, input_}, 0, zeroed);
  AddSum({zeroed}, 0, result_);
  const auto plan = MakePlan();
  EXPECT_EQ(plan->prepared_weight_bytes(), 0);
  buffers_.weight_is_prepared = true;
  Run(*plan);
  EXPECT_EQ(number_, 1);
}

}  // namespace
}  // namespace convgrad::onednn

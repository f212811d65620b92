// Tests which steps of a convolution's plan run, and where they find their
// bytes.
#include "backends/onednn/convolutions/onednn_plan_builder.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

// The tensors of a plan's runs, each of one number.
class OnednnPlanBuilder : public testing::Test {
 protected:
  OnednnPlanBuilder() {
    for (size_t i = 0; i < kOperandCount; ++i) {
      buffers_.operands[i] = &operands_[i];
    }
    buffers_.results = {&results_[0], &results_[1]};
  }

  // Appends a step that writes the sum of `reads` and `more` to `to`.
  void AddSum(const std::vector<Location>& reads, int more,
              const Location& to) {
    builder_.Add(reads, {to}, [=](const RunContext& at) {
      int sum = more;
      for (const Location& read : reads) sum += *at.Read<int>(read);
      *at.Write<int>(to) = sum;
    });
  }

  std::unique_ptr<Plan> MakePlan() {
    auto plan = PlanBuilder::MakePlan(std::move(builder_));
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }
  void Run(const Plan& plan) {
    std::vector<std::byte> scratch(plan.scratch_bytes());
    buffers_.scratch = absl::MakeSpan(scratch);
    const auto times = plan.Run(buffers_);
    EXPECT_TRUE(times.ok()) << times.status();
    EXPECT_TRUE(times->steps.empty());
  }

  PlanBuilder builder_{2, 1};
  RunBuffers buffers_{kOperandCount};
  int operands_[kOperandCount] = {1, 10, 100, 1000, 10000, 100000};
  int results_[2] = {};
};

constexpr auto kInput = static_cast<size_t>(Operand::kInput);
constexpr auto kWeight = static_cast<size_t>(Operand::kWeight);

TEST_F(OnednnPlanBuilder, StepsFindTheCallersTensorsAndTheirOwn) {
  const Location first = builder_.Allocate(64);
  const Location second = builder_.Allocate(64);
  AddSum({PlanBuilder::OperandAt(kInput)}, 2, first.At(4));
  AddSum({first.At(4)}, 3, second);
  AddSum({second, first.At(4)}, 0, PlanBuilder::ResultAt(1));
  Run(*MakePlan());
  EXPECT_EQ(results_[0], 0);
  EXPECT_EQ(results_[1], 3 + 6);
}

TEST_F(OnednnPlanBuilder, LeavesOutWhatAPreparedWeightIsMadeBy) {
  const Location on_the_way = builder_.Allocate(64);
  const Location prepared = builder_.Allocate(64);
  AddSum({PlanBuilder::OperandAt(kWeight)}, 1, on_the_way);
  AddSum({on_the_way}, 1, prepared);
  AddSum({prepared, PlanBuilder::OperandAt(kInput)}, 0,
         PlanBuilder::ResultAt(0));
  const auto plan = MakePlan();
  EXPECT_EQ(plan->prepared_weight_bytes(), 64);
  Run(*plan);
  EXPECT_EQ(results_[0], 13);
  int kept[16] = {};
  buffers_.prepared_weight =
      absl::MakeSpan(reinterpret_cast<std::byte*>(kept), sizeof(kept));
  Run(*plan);
  EXPECT_EQ(results_[0], 13);
  EXPECT_EQ(kept[0], 12);
  buffers_.weight_is_prepared = true;
  buffers_.operands[kWeight] = nullptr;
  kept[0] = 7;
  Run(*plan);
  EXPECT_EQ(results_[0], 8);
}

TEST_F(OnednnPlanBuilder, WhatIsWrittenTwiceIsNotPrepared) {
  const Location zeroed = builder_.Allocate(64);
  AddSum({}, 0, zeroed);
  AddSum({zeroed, PlanBuilder::OperandAt(kInput)}, 0, zeroed);
  AddSum({zeroed}, 0, PlanBuilder::ResultAt(0));
  const auto plan = MakePlan();
  EXPECT_EQ(plan->prepared_weight_bytes(), 0);
  buffers_.weight_is_prepared = true;
  Run(*plan);
  EXPECT_EQ(results_[0], 1);
}

}  // namespace
}  // namespace convgrad::onednn

// Tests which steps of a plan run, in which order and on which bytes.
#include "backends/onednn/execution/onednn_scheduled_plan.h"

#include <thread>
#include <utility>

#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_types.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

using testing::ElementsAre;
using testing::Key;

class TestPlan final : public ScheduledPlan {
 public:
  explicit TestPlan(Schedule schedule, std::vector<bool> on_tape = {})
      : ScheduledPlan(Place(std::move(schedule), std::move(on_tape)), "test",
                      1) {}

 private:
  static PlacedSchedule Place(Schedule schedule, std::vector<bool> on_tape) {
    on_tape.resize(schedule.buffers().size());
    MemoryMap memory = PlaceBuffers(schedule, on_tape);
    PreparedParts prepared = FindPrepared(schedule, {});
    // The tape is the last result.
    return {std::move(schedule),
            std::move(memory),
            {0, Area::kResult, 1},
            std::move(prepared)};
  }
};

// Adds an operand and a result, both of one float.
struct Ends {
  explicit Ends(Schedule* schedule)
      : operand(schedule->AddBuffer({4, Area::kOperand, 0})),
        result(schedule->AddBuffer({4, Area::kResult, 0})) {}
  BufferId operand, result;
};

// Appends a step that writes the sum of `from` and `more`.
void AddSum(BufferId from, float more, BufferId to, Schedule* schedule) {
  schedule->Add({.kind = "sum",
                 .reads = {from},
                 .writes = {to},
                 .function = [=](const RunContext& context) {
                   *context.Write<float>(to) =
                       *context.Read<float>(from) + more;
                 }});
}

dnnl::memory::desc Floats(int64_t count) {
  return {{count}, dnnl::memory::data_type::f32, {1}};
}

absl::StatusOr<RunTimes> RunOn(const ScheduledPlan& plan, const float* operand,
                               float* result, void* tape = nullptr) {
  RunBuffers buffers(1);
  buffers.operands[0] = operand;
  buffers.results = {result, tape};
  std::vector<std::byte> scratch(plan.scratch_bytes());
  buffers.scratch = absl::MakeSpan(scratch);
  return plan.Run(buffers);
}

TEST(ScheduledPlan, RunsAtOnceShareNothing) {
  Schedule schedule;
  const Ends ends(&schedule);
  const BufferId copy = schedule.AddBuffer(4);
  AddReorder({ends.operand, Floats(1)}, {copy, Floats(1)}, &schedule);
  AddReorder({copy, Floats(1)}, {ends.result, Floats(1)}, &schedule);
  const TestPlan plan(std::move(schedule));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&plan, i] {
      // Enough runs that some overlap even on few cores.
      for (int run = 0; run < 5000; ++run) {
        const auto operand = static_cast<float>(i + run);
        float result = -1;
        ASSERT_TRUE(RunOn(plan, &operand, &result).ok());
        ASSERT_EQ(result, operand);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ScheduledPlan, LeavesOutStepsWhoseFlagIsZero) {
  for (const int32_t flag : {0, 1}) {
    Schedule schedule;
    const Ends ends(&schedule);
    const BufferId condition = schedule.AddBuffer(sizeof(int32_t));
    AddSum(ends.operand, 1, ends.result, &schedule);
    schedule.Add({.writes = {condition}, .function = [=](const RunContext& at) {
                    *at.Write<int32_t>(condition) = flag;
                  }});
    const size_t begin = schedule.steps().size();
    AddSum(ends.operand, 2, ends.result, &schedule);
    schedule.RunOnlyIf(condition, begin);
    const float operand = 10;
    float result = 0;
    ASSERT_TRUE(RunOn(TestPlan(std::move(schedule)), &operand, &result).ok());
    EXPECT_EQ(result, flag == 0 ? 11 : 12);
  }
}

TEST(ScheduledPlan, CountsStepsOnTheLibrarysReference) {
  const dnnl::memory::desc x = {{1, 1, 1, 1},
                                dnnl::memory::data_type::f32,
                                dnnl::memory::format_tag::abcd};
  const dnnl::primitive_attr attributes = StrictAttributes();
  for (const bool is_reference : {false, true}) {
    dnnl::convolution_forward::primitive_desc desc(
        CpuEngine(), dnnl::prop_kind::forward_inference,
        dnnl::algorithm::convolution_direct, x, x, x, {1, 1}, {0, 0}, {0, 0},
        attributes);
    while (IsPlainLoop(desc) != is_reference) ASSERT_TRUE(desc.next_impl());
    Schedule schedule;
    const Ends ends(&schedule);
    for (int i = 0; i < 2; ++i) {
      schedule.Add({.kind = "conv",
                    .reads = {ends.operand},
                    .writes = {ends.result},
                    .primitive_desc = desc,
                    .arguments = {{DNNL_ARG_SRC, x, ends.operand},
                                  {DNNL_ARG_WEIGHTS, x, ends.operand},
                                  {DNNL_ARG_DST, x, ends.result}}});
    }
    const TestPlan plan(std::move(schedule));
    float operand = 3, result = 0;
    const absl::StatusOr<RunTimes> times = RunOn(plan, &operand, &result);
    ASSERT_TRUE(times.ok()) << times.status();
    EXPECT_EQ(result, 9);
    EXPECT_EQ(times->reference_steps, is_reference ? 2 : 0);
    const std::vector<std::string> names(is_reference ? 2 : 0,
                                         "conv by ref:any");
    EXPECT_EQ(plan.reference_steps(), names);
  }
}

TEST(ScheduledPlan, AFailedCheckEndsTheRunAndHarmsNoLaterOne) {
  Schedule schedule;
  const Ends ends(&schedule);
  schedule.Add(
      {.reads = {ends.operand},
       .writes = {ends.result},
       .function =
           [=](const RunContext& at) { *at.Write<float>(ends.result) = 5; },
       .check =
           [=](const RunContext& at) {
             return *at.Read<float>(ends.operand) < 0
                        ? absl::InvalidArgumentError("negative")
                        : absl::OkStatus();
           }});
  const TestPlan plan(std::move(schedule));
  float operand = -1, result = 0;
  EXPECT_EQ(RunOn(plan, &operand, &result).status(),
            absl::InvalidArgumentError("negative"));
  EXPECT_EQ(result, 0);
  operand = 1;
  EXPECT_TRUE(RunOn(plan, &operand, &result).ok());
  EXPECT_EQ(result, 5);
}

TEST(ScheduledPlan, EveryByteOfATapeIsWritten) {
  Schedule schedule;
  const Ends ends(&schedule);
  const BufferId first = schedule.AddBuffer(4), second = schedule.AddBuffer(4);
  AddSum(ends.operand, 1, first, &schedule);
  AddSum(first, 1, second, &schedule);
  const TestPlan plan(std::move(schedule), {false, false, true, true});
  ASSERT_EQ(plan.tape_bytes(), 128);
  const float operand = 1;
  std::vector<float> tape(32, -1), expected(32, 0);
  ASSERT_TRUE(RunOn(plan, &operand, nullptr, tape.data()).ok());
  expected[0] = 2;
  expected[16] = 3;
  EXPECT_EQ(tape, expected);
}

TEST(ScheduledPlan, TimesAreThoseOfKinds) {
  Schedule schedule;
  const Ends ends(&schedule);
  const BufferId copy = schedule.AddBuffer(4);
  AddReorder({ends.operand, Floats(1)}, {copy, Floats(1)}, &schedule);
  AddSum(copy, 1, ends.result, &schedule);
  const float operand = 1;
  float result = 0;
  const auto times = RunOn(TestPlan(std::move(schedule)), &operand, &result);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(result, 2);
  EXPECT_THAT(times->steps, ElementsAre(Key("sum")));
}

}  // namespace
}  // namespace convgrad::onednn

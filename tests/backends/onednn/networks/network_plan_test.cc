// Tests the memory that plans of networks hold.
#include "backends/onednn/networks/network_plan.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

std::shared_ptr<const ProgramOperation> OperationOf(const std::string& step,
                                                    const Dims& x,
                                                    ProgramPart part) {
  ProgramRequest request;
  request.program = std::make_shared<const convgrad::Program>(*ParseProgram(
      "input x\na = " + step + "\ny = mse(a, a, reduction=sum)\noutput y\n"));
  request.part = part;
  request.inputs.resize(1);
  request.inputs[0].dims = x;
  request.input_gradients = {true};
  return *ProgramOperation::Make(std::move(request));
}

// Returns the resident bytes beside those of primitives and functions.
int64_t TableBytes(const NetworkPlan& plan) {
  int64_t bytes = plan.resident_bytes();
  for (const Step& step : plan.steps()) {
    bytes -= step.function ? 4 << 10 : 64 << 10;
  }
  return bytes;
}

// `taps` is the number of pairs of an output and an input, summed over the
// axes. `positions` is the number of outputs and inputs of all axes.
void ExpectCounted(const char* step, const Dims& x, int64_t taps,
                   int64_t positions) {
  for (const bool trains : {false, true}) {
    SCOPED_TRACE(step);
    const auto operation = OperationOf(
        step, x, trains ? ProgramPart::kTrain : ProgramPart::kForward);
    const auto plan = MakeNetworkPlan(*operation, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t tables = TableBytes(**plan);
    // The backward has its own lists. An entry takes 8 bytes, and the begin of
    // each position's list 8 more.
    const int64_t entries = taps * (trains ? 2 : 1);
    EXPECT_GE(tables, 8 * entries);
    EXPECT_LE(tables, 8 * (entries + positions) + 4096);
    EXPECT_GE(NetworkPlanningBytes(*operation), 8 * entries);
    EXPECT_LE(NetworkPlanningBytes(*operation), 3 * tables);
  }
}

TEST(NetworkPlan, CountsTablesInItselfAndBeforehand) {
  ExpectCounted("max_pool(x, kernel_size=600, stride=1)", {1, 1, 1200},
                601 * 600, 601 + 1200);
  ExpectCounted("avg_pool(x, kernel_size=[300, 1], stride=1)", {1, 2, 1000, 7},
                701 * 300 + 7, 701 + 1000 + 7 + 7);
  ExpectCounted("adaptive_avg_pool(x, output_size=50000)", {1, 1, 100000},
                100000, 150000);
  ExpectCounted("upsample(x, size=100000)", {1, 1, 1}, 100000, 100001);
  ExpectCounted("upsample(x, mode=bilinear, size=[50000, 1])", {1, 1, 4, 1},
                100000 + 2, 50000 + 4 + 2);
}

TEST(NetworkPlan, CountsAFunctionLessThanAPrimitive) {
  const auto sine = MakeNetworkPlan(
      *OperationOf("sin(x)", {4, 16}, ProgramPart::kForward), {});
  const auto product = MakeNetworkPlan(
      *OperationOf("matmul(x, x)", {16, 16}, ProgramPart::kForward), {});
  ASSERT_TRUE(sine.ok() && product.ok());
  EXPECT_GT((*sine)->resident_bytes(), 2 << 10);
  EXPECT_LT((*sine)->resident_bytes(), 32 << 10);
  EXPECT_GT((*product)->resident_bytes(), 48 << 10);
}

// Returns a run of `steps` products in a row.
std::shared_ptr<const ProgramOperation> ProductsOf(int steps,
                                                   ProgramPart part) {
  std::string text = "input x\nparameter w [8, 8]\nv0 = relu(x)\n";
  for (int i = 0; i < steps; ++i) {
    absl::StrAppend(&text, "v", i + 1, " = linear(v", i, ", w)\n");
  }
  absl::StrAppend(&text, "y = mse(v", steps, ", x)\noutput y\n");
  ProgramRequest request;
  request.program =
      std::make_shared<const convgrad::Program>(*ParseProgram(text));
  request.part = part;
  request.inputs.resize(1);
  request.inputs[0].dims = {4, 8};
  request.input_gradients = {false};
  request.parameter_gradients = true;
  return *ProgramOperation::Make(std::move(request));
}

TEST(NetworkPlan, CountsPrimitivesBeforehand) {
  for (const ProgramPart part : {ProgramPart::kForward, ProgramPart::kTrain}) {
    const auto operation = ProductsOf(100, part);
    const auto plan = MakeNetworkPlan(*operation, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t held = (*plan)->resident_bytes();
    EXPECT_GT(held, 100 * kPrimitiveBytes);
    EXPECT_GT(NetworkPlanningBytes(*operation), held * 3 / 4);
    EXPECT_LT(NetworkPlanningBytes(*operation), held * 2);
  }
}

TEST(NetworkPlan, ManyTinyStepsAreSeveralQuanta) {
  std::string text = "input x\nv0 = relu(x)\n";
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&text, "v", i + 1, " = softmax(v", i, ")\n");
  }
  ProgramRequest request;
  request.program = std::make_shared<const convgrad::Program>(
      *ParseProgram(text + "output v5000\n"));
  request.inputs.resize(1);
  request.inputs[0].dims = {2, 2};
  const auto plan =
      MakeNetworkPlan(**ProgramOperation::Make(std::move(request)), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->quanta(), 2);
}

TEST(NetworkPlan, CountsAFunctionOfEachOperandBeforehand) {
  std::string step = "concat(x";
  for (int i = 0; i < 500; ++i) step += ", x";
  const auto operation = OperationOf(step + ")", {4, 4}, ProgramPart::kForward);
  const auto plan = MakeNetworkPlan(*operation, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(NetworkPlanningBytes(*operation), (*plan)->resident_bytes() / 2);
  EXPECT_LT(NetworkPlanningBytes(*operation), (*plan)->resident_bytes() * 2);
}

TEST(NetworkPlan, CountsTablesThatRunsMakeAsScratch) {
  const auto operation = OperationOf("normalize(x, mean=0, std=1)",
                                     {1, 100000, 2}, ProgramPart::kForward);
  const auto plan = MakeNetworkPlan(*operation, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(TableBytes(**plan), 4096);
  EXPECT_GE((*plan)->scratch_bytes(), 3 * 100000 * int64_t{sizeof(float)});
}

TEST(NetworkPlan, AForwardMakesNoTableOfAPadsGradient) {
  constexpr int64_t kPositions = 100000;
  const auto operation = OperationOf("pad(x, pads=[0, 1])", {1, 1, kPositions},
                                     ProgramPart::kForward);
  const auto plan = MakeNetworkPlan(*operation, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t table = kPositions * int64_t{sizeof(int64_t)};
  EXPECT_GE((*plan)->scratch_bytes(), table);
  EXPECT_LT((*plan)->scratch_bytes(), 3 * table);
}

// A training run of a convolution of 512 channels and of the layers around it.
std::unique_ptr<NetworkPlan> PlanOfTraining(bool fast) {
  ProgramRequest request;
  request.program = std::make_shared<const convgrad::Program>(
      *ParseProgram("input x\nparameter w [512, 512, 3, 3]\n"
                    "a = relu(x)\nb = conv(a, w, padding=1)\nc = relu(b)\n"
                    "y = mse(c, a)\noutput y\n"));
  request.part = ProgramPart::kTrain;
  request.fast = fast;
  request.inputs.resize(1);
  request.inputs[0].dims = {4, 512, 14, 14};
  request.input_gradients = {true};
  return *MakeNetworkPlan(**ProgramOperation::Make(std::move(request)),
                          {.threads = 1});
}

TEST(NetworkPlan, TakesNoMoreMemoryAndTurnsIfItIsFast) {
  const auto fast = PlanOfTraining(true);
  const auto direct = PlanOfTraining(false);
  const auto macs = [](const NetworkPlan& plan) {
    double sum = 0;
    for (const Step& step : plan.steps()) sum += step.macs;
    return sum;
  };
  EXPECT_GT(fast->steps().size(), direct->steps().size());
  EXPECT_NEAR(macs(*fast), macs(*direct), 1e-9 * macs(*direct));
  // A flag takes a line of 64 bytes.
  EXPECT_LE(fast->scratch_bytes(), direct->scratch_bytes() + 1024);
}

TEST(CheckNetwork, RefusesPoolingsOfTooManyPositions) {
  const auto operation = OperationOf("upsample(x, size=[65536, 32768])",
                                     {1, 1, 1, 1}, ProgramPart::kForward);
  const absl::Status status = CheckNetwork(*operation);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "steps[0] (a): found f32:NCX[1,1,65536,32768], expected fewer than "
            "2^31 positions of an image");
}

TEST(CheckNetwork, RefusesOutputPaddingsThatTheLibraryCannotSkip) {
  const auto operation_of = [](const char* attributes) {
    ProgramRequest request;
    request.program =
        std::make_shared<const convgrad::Program>(*ParseProgram(absl::StrCat(
            "input x\nparameter w [3, 2, 3]\n", "y = conv_transpose(x, w, ",
            attributes, ")\noutput y\n")));
    request.part = ProgramPart::kForward;
    request.inputs.resize(1);
    request.inputs[0].dims = {1, 3, 5};
    request.input_gradients = {false};
    return *ProgramOperation::Make(std::move(request));
  };
  const auto possible =
      operation_of("stride=2, dilation=4, padding=1, output_padding=2");
  EXPECT_TRUE(CheckNetwork(*possible).ok());
  EXPECT_TRUE(MakeNetworkPlan(*possible, {}).ok());
  const absl::Status status = CheckNetwork(
      *operation_of("stride=2, dilation=4, padding=1, output_padding=3"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "steps[0] (y).output_padding: found 3, expected less than stride + "
            "padding, 3");
}

}  // namespace
}  // namespace convgrad::onednn

// Tests plans for a device that isn't present: cuDNN selects and checks engines
// for a described H200, and nothing runs.
#include "backends/cuda/cuda_conv_plan.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "backends/cuda/cuda_candidates.h"
#include "backends/cuda/cuda_forbidden_engines.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/random_problem.h"

namespace convgrad::cuda {
namespace {

using convgrad::testing_support::BlockedLayouts;
using convgrad::testing_support::LayoutSet;
using convgrad::testing_support::MakeOperation;
using convgrad::testing_support::OperationSpec;
using convgrad::testing_support::RandomProblems;
using convgrad::testing_support::ReadShapeList;
using convgrad::testing_support::RowMajorLayouts;

GraphTarget H200() {
  std::stringstream text;
  text << std::ifstream(CONVGRAD_H200).rdbuf();
  auto target = GraphTarget::OfDescription(text.str());
  EXPECT_TRUE(target.ok()) << target.status();
  return *std::move(target);
}

class CudaConvPlan : public testing::Test {
 protected:
  CudaConvPlan() : target_(H200()) {
    MutexLock lock(&worker_.mutex);
    worker_.target = &target_;
  }

  std::string ImplementationOf(const ConvOperation& operation) {
    const auto plan = MakeConvPlan(operation, &worker_);
    EXPECT_TRUE(plan.ok()) << ToString(operation) << ": " << plan.status();
    return plan.ok() ? std::string((*plan)->implementation()) : "";
  }

  // Plans forward and all gradients. ConvBackend plans empty batches.
  void PlanBoth(absl::string_view text, DataType dtype,
                const LayoutSet& layouts) {
    if (Parse(text)->batch == 0) return;
    for (const std::vector<Result>& results :
         {std::vector<Result>{Result::kOutput},
          {Result::kGradInput, Result::kGradWeight, Result::kGradBias,
           Result::kGradResidual}}) {
      OperationSpec spec;
      spec.problem = *Parse(text);
      spec.dtype = spec.result_dtype = dtype;
      spec.layouts = layouts;
      spec.results = results;
      EXPECT_NE(ImplementationOf(MakeOperation(spec)), "");
    }
  }

  GraphTarget target_;
  Worker worker_;
};

// Layouts and dtypes alternate, because all pairs for each problem take two
// minutes.
TEST_F(CudaConvPlan, EveryListedProblemHasEngines) {
  size_t turn = 0;
  for (const char* list : {"shapes_basic.txt", "shapes_whole_operator.txt"}) {
    for (const std::string& text : ReadShapeList(list)) {
      PlanBoth(
          text, turn % 2 == 0 ? DataType::kBF16 : DataType::kF32,
          turn % 3 == 0 ? BlockedLayouts()[0] : RowMajorLayouts()[turn % 4]);
      ++turn;
    }
  }
}

TEST_F(CudaConvPlan, RandomProblemsHaveEngines) {
  for (const std::string& text : RandomProblems(30, 1, 1 << 20)) {
    PlanBoth(text, DataType::kF16, RowMajorLayouts()[0]);
  }
}

TEST_F(CudaConvPlan, SixteenBitsAreComputedOnTensorCores) {
  const ConvOperation operation =
      WholeOperation(*Parse("conv2d_n32_c64_o64_i56_k3_p1"),
                     Direction::kForward, DataType::kBF16, Layout::kNXC);
  EXPECT_THAT(ImplementationOf(operation), testing::EndsWith("/bf16>bf16/nxc"));
}

TEST_F(CudaConvPlan, WorkspaceBeyondTheCapIsNotPlanned) {
  GraphSpec spec;
  spec.problem = Lowering(*Parse("conv2d_n16_c64_o64_i56_k3_p1")).problem();
  const auto large = ConvGraph::Make(spec, target_);
  ASSERT_TRUE(large.ok()) << large.status();
  ASSERT_GT((*large)->workspace_bytes(), 1 << 20);
  spec.max_workspace_bytes = 1 << 20;
  const auto small = ConvGraph::Make(spec, target_);
  EXPECT_TRUE(!small.ok() || (*small)->workspace_bytes() <= 1 << 20);
}

TEST_F(CudaConvPlan, TheEngineThatIsNamedIsTaken) {
  GraphSpec spec;
  spec.problem = Lowering(*Parse("conv2d_n16_c64_o64_i56_k3_p1")).problem();
  spec.operands = spec.result = DataType::kBF16;
  const auto engines = ConvGraph::ListEngines(spec, target_, {3, 3});
  ASSERT_TRUE(engines.ok()) << engines.status();
  ASSERT_EQ(engines->size(), 3u);
  EXPECT_EQ((*ConvGraph::Make(spec, target_))->engine(), engines->front());
  // cuDNN's heuristics choose if there is no engine of that name.
  for (const std::string& engine : {engines->back(), std::string("eng999")}) {
    spec.engine = engine;
    EXPECT_EQ((*ConvGraph::Make(spec, target_))->engine(),
              engine == "eng999" ? engines->front() : engine);
  }
}

TEST_F(CudaConvPlan, ForbiddenEnginesArentListed) {
  GraphSpec spec;
  spec.pass = Pass::kBackwardWeight;
  spec.problem = Lowering(*Parse("conv2d_n16_c64_o64_i56_k3_p1")).problem();
  ASSERT_THAT(ForbiddenEngines(spec), testing::Contains("eng17"));
  const auto engines = ConvGraph::ListEngines(spec, target_, {200, 1});
  ASSERT_TRUE(engines.ok()) << engines.status();
  EXPECT_THAT(*engines, testing::Not(testing::IsEmpty()));
  EXPECT_THAT(*engines,
              testing::Not(testing::Contains(testing::StartsWith("eng17"))));
}

TEST_F(CudaConvPlan, NoEngineSplitsSumsIn16Bits) {
  GraphSpec spec;
  spec.pass = Pass::kBackwardWeight;
  spec.problem = Lowering(*Parse("conv2d_n4_c124_o19_i17_k1")).problem();
  spec.operands = spec.result = DataType::kBF16;
  const auto splits = [&] {
    const auto engines = ConvGraph::ListEngines(spec, target_, {200, 200});
    EXPECT_TRUE(engines.ok()) << engines.status();
    return std::count_if(engines->begin(), engines->end(),
                         [](const std::string& engine) {
                           const size_t split = engine.find("_k0=");
                           return split != std::string::npos &&
                                  engine.substr(split, 6) != "_k0=1_";
                         });
  };
  EXPECT_EQ(splits(), 0);
  spec.allows_forbidden = true;
  EXPECT_GT(splits(), 0);
}

// Engines take them, but compute wrong sums.
TEST_F(CudaConvPlan, UnequalPadsLieInTheData) {
  const PassSpec pass{Pass::kBackwardWeight,
                      Lowering(*Parse("conv2d_n4_c8_o8_i9_k3_pb1")).problem()};
  const auto candidate = ChooseCandidate(pass, target_);
  ASSERT_TRUE(candidate.ok()) << candidate.status();
  EXPECT_EQ(candidate->spec.problem.axes[0].pad_begin, 0);
  EXPECT_EQ(candidate->spec.problem.axes[0].in, 10);
}

TEST_F(CudaConvPlan, ABadDescriptionIsRefused) {
  EXPECT_EQ(GraphTarget::OfDescription("{}").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SliceCount, CutsLargeBatchesEvenly) {
  const auto slices = [](const char* text) {
    return SliceCount(WholeOperation(*Parse(text), Direction::kBackward,
                                     DataType::kF32, Layout::kNCX));
  };
  EXPECT_EQ(slices("conv2d_n32_c64_o64_i56_k3_p1"), 8);
  EXPECT_EQ(slices("conv2d_n31_c64_o64_i56_k3_p1"), 1);
  EXPECT_EQ(slices("conv2d_n6_c64_o64_i112_k3_p1"), 6);
  EXPECT_EQ(slices("conv2d_n32_c16_o16_i7_k3_p1"), 1);
}

TEST(SliceCount, KeepsAWeightGradientIn16BitsWhole) {
  ConvOperation operation =
      WholeOperation(*Parse("conv2d_n32_c64_o64_i56_k3_p1"),
                     Direction::kBackward, DataType::kBF16, Layout::kNCX);
  EXPECT_EQ(SliceCount(operation), 4);
  for (ResultRequest& request : operation.results) {
    request.descriptor.dtype = DataType::kBF16;
  }
  EXPECT_EQ(SliceCount(operation), 1);
}

}  // namespace
}  // namespace convgrad::cuda

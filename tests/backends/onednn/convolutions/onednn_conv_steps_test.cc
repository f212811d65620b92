// Tests gradients of a bias whose numbers all have one sign, because roundings
// may then have one sign as well; masks and residuals in layouts that differ
// from the tensor's that they belong to; and kernels far longer than a request.
#include "backends/onednn/convolutions/onednn_conv_steps.h"

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/program/conv_backend.h"
#include "backends/onednn/convolutions/onednn_conv_plan.h"
#include "gtest/gtest.h"
#include "tests/conformance/checked_run.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/operation_spec.h"

namespace convgrad::onednn {
namespace {

using testing_support::DataKind;
using testing_support::ExpectReal;
using testing_support::IsWithinBound;
using testing_support::MakeOperation;
using testing_support::OperationSpec;
using testing_support::RealFill;
using testing_support::RoundedTo;
using testing_support::RunChecked;

class PlanningBackend final : public ConvBackend {
 public:
  absl::string_view name() const override { return "planning"; }
  BackendCapabilities capabilities() const override { return {}; }
  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation, const PlanOptions&) const override {
    return MakeConvPlan(operation, {1, /*native_bf16=*/true}, /*like=*/"");
  }
};

// Checks the bias gradient beside a weight gradient.
void ExpectBiasWithinBound(const OperationSpec& spec, double number) {
  const ConvOperation operation = MakeOperation(spec);
  ExactOperands operands;
  for (const Operand which : {Operand::kInput, Operand::kGradOutput}) {
    const int64_t count = ElementCount(*operation.operand(which));
    operands[static_cast<size_t>(which)] =
        which == Operand::kInput
            ? RealFill(count, 1, spec.dtype)
            : std::vector<double>(count, RoundedTo(spec.dtype, number));
  }
  const auto results = RunChecked(PlanningBackend(), operation, operands);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE(IsWithinBound(
      {&operation, &operation.results[1], (*results)[1].data()},
      ExpectReal(operation, Result::kGradBias, operands), DataKind::kAny))
      << ToString(operation) << " " << number;
}

TEST(ConvSteps, GradientsOfOneSignAddUpToABiasWithinTheBound) {
  for (const char* problem :
       {"conv2d_n2_c8_o24_i56_k3_p1", "conv2d_n1_c3_o16_i100_k1",
        "conv2d_n2_c32_o32_g32_i50_k3_p1", "conv1d_n1_c16_o16_g16_i9000_k5",
        "conv2d_n1_c8_o8_i8x16_k1", "linear_n3000_c8_o5"}) {
    for (const DataType dtype :
         {DataType::kF32, DataType::kBF16, DataType::kF16}) {
      OperationSpec spec;
      spec.problem = *Parse(problem);
      spec.results = {Result::kGradWeight, Result::kGradBias};
      spec.dtype = dtype;
      for (int i = 3; i < 16; i += 2) ExpectBiasWithinBound(spec, 1.0 / i);
    }
  }
}

// Checks results on real numbers with `which` in another layout than the other
// activations.
void ExpectRightWith(OperationSpec spec, Operand which) {
  for (const Layout layout : {Layout::kNCX, Layout::kNXC}) {
    ConvOperation operation = MakeOperation(spec);
    operation.operand(which)->layout = layout;
    ExactOperands operands;
    for (const Operand operand : kAllOperands) {
      const auto& tensor = operation.operand(operand);
      const auto i = static_cast<size_t>(operand);
      if (tensor) operands[i] = RealFill(ElementCount(*tensor), i, spec.dtype);
    }
    const auto results = RunChecked(PlanningBackend(), operation, operands);
    ASSERT_TRUE(results.ok()) << results.status();
    for (size_t i = 0; i < results->size(); ++i) {
      const ResultRequest& request = operation.results[i];
      EXPECT_TRUE(IsWithinBound({&operation, &request, (*results)[i].data()},
                                ExpectReal(operation, request.which, operands),
                                DataKind::kAny))
          << ToString(operation);
    }
  }
}

TEST(ConvSteps, TakesMasksAndResidualsInAnyLayout) {
  for (const Layout layout : {Layout::kNCX, Layout::kNXC, Layout::kNDC1HWC0}) {
    OperationSpec spec;
    spec.layouts.output = spec.layouts.result = layout;
    spec.problem = *Parse("conv2d_n2_c3_o20_i5_k3_relu");
    spec.results = {Result::kGradInput, Result::kGradWeight};
    ExpectRightWith(spec, Operand::kOutput);
    spec.problem = *Parse("conv2d_n2_c3_o20_i5_k3_relu_res");
    spec.results = {Result::kOutput};
    ExpectRightWith(spec, Operand::kResidual);
  }
}

// A request doesn't carry the weight, so the kernel's extent has no limit.
TEST(ConvSteps, ABiasGradientTakesNoTimeForTheKernel) {
  for (const char* problem :
       {"conv1d_n1_c1_o1_i1000000000000000_k1000000000000000",
        "conv1d_n0_c1_o1_i1000000000000000_k1000000000000000"}) {
    OperationSpec spec;
    spec.problem = *Parse(problem);
    spec.results = {Result::kGradBias};
    const ConvOperation operation = MakeOperation(spec);
    ExactOperands operands;
    operands[static_cast<size_t>(Operand::kGradOutput)] =
        std::vector<double>(static_cast<size_t>(spec.problem.batch), 3);
    const auto results = RunChecked(PlanningBackend(), operation, operands);
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ(LoadAsDouble(DataType::kF32, (*results)[0].data()),
              spec.problem.batch * 3.0);
  }
}

// The library has no kernels for this dilation.
TEST(ConvSteps, AKernelOfWhichOneTapIsLeftHasNoDilation) {
  OperationSpec spec;
  spec.problem = *Parse("conv1d_n1_c1_o1_i2_k3_d1000000000000_p1000000000000");
  const auto results =
      RunChecked(PlanningBackend(), MakeOperation(spec), {{{3, 4}, {5, 6, 7}}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(LoadAsDouble(DataType::kF32, (*results)[0].data()), 18);
}

// Two windows each read the input by two taps.
TEST(ConvSteps, PlanningTakesTimeInProportionToTheKernel) {
  OperationSpec spec;
  spec.problem = *Parse("conv1d_n1_c1_o1_i2_k1000000_s900000_p950000");
  spec.results = {Result::kGradWeight};
  ExactOperands operands;
  for (const Operand which : {Operand::kInput, Operand::kGradOutput}) {
    operands[static_cast<size_t>(which)] = {1, 2};
  }
  const auto results =
      RunChecked(PlanningBackend(), MakeOperation(spec), operands);
  ASSERT_TRUE(results.ok()) << results.status();
  double sum = 0;
  for (int64_t i = 0; i < 1'000'000; ++i) {
    sum += LoadAsDouble(DataType::kF32, (*results)[0].data() + 4 * i);
  }
  EXPECT_EQ(sum, (1 + 2) * (1 + 2));
}

// The library's cache of primitives takes channels first and channels last for
// the same layout in these problems.
TEST(ConvSteps, APlanDoesNotDependOnEarlierPlans) {
  for (const char* problem :
       {"linear_n1_c32_o32", "linear_n8_c64_o10", "conv2d_n2_c64_o64_i1_k1",
        "conv2d_n1_c1_o1_i8_k3"}) {
    for (const DataType dtype : {DataType::kF32, DataType::kBF16}) {
      for (const bool is_forward : {true, false}) {
        OperationSpec spec;
        spec.problem = *Parse(problem);
        spec.dtype = dtype;
        spec.results = {is_forward ? Result::kOutput : Result::kGradInput};
        const ConvOperation operation = MakeOperation(spec);
        const auto implementation = [&](absl::string_view like) {
          const auto plan =
              MakeConvPlan(operation, {1, /*native_bf16=*/true}, like);
          return plan.ok() ? std::string((*plan)->implementation())
                           : plan.status().ToString();
        };
        const std::string first = implementation("");
        const absl::string_view pass = first.substr(0, first.find('='));
        for (const char* format : {"ncx", "nxc", "any"}) {
          implementation(absl::StrCat(pass, "=/", format));
          EXPECT_EQ(implementation(""), first) << ToString(operation);
        }
      }
    }
  }
}

}  // namespace
}  // namespace convgrad::onednn

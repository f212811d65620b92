// Tests that the self-check passes correct results and fails wrong ones.
#include "backends/proof/self_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/functional/function_ref.h"
#include "backends/registry.h"
#include "gtest/gtest.h"
#include "tests/conformance/checked_operation.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/random_operation.h"

namespace convgrad::testing_support {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr const char* kProblems[] = {
    "conv2d_n2_c3_o4_i5x6_k3x2_p1x1", "conv1d_n2_c4_o6_g2_i9_k3_s2_d2_p2",
    "convtranspose2d_n2_c4_o3_i4x4_k3x3_s2x2_op1x1", "linear_n5_c7_o3",
    "conv3d_n2_c2_o2_i3x3x3_k2x2x2"};

// Returns (), (O), (1,O,1...), (N,1,1...), (1,1,spatial...) and the output's
// dims.
std::vector<Dims> BiasShapes(const ConvProblem& problem) {
  const Dims output = OutputDims(problem);
  Dims channel(output.size(), 1), batch(output.size(), 1), space = output;
  channel[1] = output[1];
  batch[0] = output[0];
  space[0] = space[1] = 1;
  return {{}, {output[1]}, channel, batch, space, output};
}

// Calls `body` for each problem with all of its parts, in every dtype, bias
// shape and layout, scaled or not.
void ForEachSpec(const std::vector<Result>& results,
                 absl::FunctionRef<void(const OperationSpec&)> body) {
  const LayoutSet layouts[] = {RowMajorLayouts()[0], RowMajorLayouts()[1],
                               RowMajorLayouts()[3], BlockedLayouts()[0]};
  int count = 0;
  for (const char* name : kProblems) {
    const ConvProblem problem = *Parse(std::string(name) + "_b_res_relu");
    for (const Dims& bias : BiasShapes(problem)) {
      for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
        OperationSpec spec;
        spec.problem = problem;
        spec.problem.bias = bias;
        spec.results = results;
        spec.dtype = dtype;
        // These alternate, so that every pair of them occurs with every dtype.
        spec.result_dtype = count % 2 == 0 ? dtype : DataType::kF32;
        spec.side_dtype = count % 3 == 0 ? dtype : DataType::kF32;
        for (const LayoutSet& set : layouts) {
          spec.layouts = set;
          spec.scale = count % 4 == 1 ? -2.5f : count % 4 == 2 ? 0.125f : 1;
          ++count;
          SCOPED_TRACE(ToString(MakeOperation(spec)) + " scale " +
                       std::to_string(spec.scale));
          body(spec);
        }
      }
    }
  }
}

const std::vector<Result> kGradients = {Result::kGradInput, Result::kGradWeight,
                                        Result::kGradBias,
                                        Result::kGradResidual};

std::vector<double> Rotated(std::vector<double> values) {
  std::rotate(values.begin(), values.begin() + 1, values.end());
  return values;
}

TEST(SelfCheckTest, PassesRightOutputs) {
  ForEachSpec({Result::kOutput}, [](const OperationSpec& spec) {
    const SelfCheckReport report = CheckedOperation(spec).Check();
    EXPECT_TRUE(report.passed) << *report.output_error;
    EXPECT_FALSE(report.forward || report.grad_bias_error);
  });
}

TEST(SelfCheckTest, PassesRightGradients) {
  ForEachSpec(kGradients, [](const OperationSpec& spec) {
    const SelfCheckReport report = CheckedOperation(spec).Check();
    EXPECT_TRUE(report.passed)
        << *report.grad_bias_error << " " << *report.grad_residual_error;
    EXPECT_GT(report.bound, 0);
    EXPECT_NEAR(*report.grad_input, *report.forward, report.bound);
    EXPECT_NEAR(*report.grad_weight, *report.forward, report.bound);
    EXPECT_FALSE(report.output_error.has_value());
  });
}

// As without loss scaling: most results are below the smallest normal number,
// some become 0.
TEST(SelfCheckTest, PassesGradientsThatAreSubnormal) {
  OperationSpec spec;
  spec.problem = *Parse(kProblems[0]);
  spec.results = {Result::kGradInput, Result::kGradWeight};
  spec.dtype = spec.result_dtype = DataType::kF16;
  CheckedOperation checked(spec);
  std::vector<double> gradient = checked.Get(Operand::kGradOutput);
  for (double& value : gradient) value *= 0x1p-24;
  checked.Set(Operand::kGradOutput, gradient);
  checked.Compute(checked.operation);
  EXPECT_TRUE(checked.Check().passed);
  checked.Set(0, std::vector<double>(checked.Get(0).size(), 0x1p-20));
  EXPECT_FALSE(checked.Check().passed);
}

TEST(SelfCheckTest, PassesWhatBackendsMakeOfRandomOperations) {
  std::mt19937 random(1);
  const auto backends = MakeBackends();
  int checked = 0;
  for (int i = 0; i < 150; ++i) {
    const ConvOperation operation = RandomOperation(500'000, &random);
    SCOPED_TRACE(ToString(operation));
    for (const RegisteredBackend& entry : backends) {
      if (!entry.backend.ok() ||
          !(*entry.backend)->CheckSupport(operation).ok() ||
          !SelfCheck::Make(**entry.backend, operation, {}).ok()) {
        continue;
      }
      EXPECT_TRUE(CheckedOperation(operation, **entry.backend).Check().passed)
          << entry.name;
      ++checked;
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(SelfCheckTest, FailsWrongIdentities) {
  ForEachSpec({Result::kGradInput, Result::kGradWeight},
              [](const OperationSpec& spec) {
                for (size_t result : {0, 1}) {
                  CheckedOperation backward(spec);
                  auto values = backward.Get(result);
                  values[0] += 8 * spec.scale;
                  backward.Set(result, values);
                  EXPECT_FALSE(backward.Check().passed) << "result " << result;
                }
              });
}

TEST(SelfCheckTest, FailsOutputsWithAPartDroppedOrATapSwapped) {
  ForEachSpec({Result::kOutput}, [](const OperationSpec& spec) {
    CheckedOperation forward(spec);
    ConvOperation broken = forward.operation;
    broken.problem.residual = false;
    forward.Compute(broken);
    EXPECT_FALSE(forward.Check().passed) << "no residual";

    broken = forward.operation;
    broken.problem.relu = false;
    forward.Compute(broken);
    EXPECT_FALSE(forward.Check().passed) << "no ReLU";

    broken = forward.operation;
    broken.problem.bias.reset();
    forward.Compute(broken);
    EXPECT_FALSE(forward.Check().passed) << "no bias";

    broken = forward.operation;
    broken.results[0].scale = 0.5f;
    forward.Compute(broken);
    EXPECT_FALSE(forward.Check().passed) << "another scale";

    forward.ComputeWith(Operand::kWeight,
                        Rotated(forward.Get(Operand::kWeight)));
    EXPECT_FALSE(forward.Check().passed) << "swapped taps";

    // One element is wrong.
    forward.Compute(forward.operation);
    auto values = forward.Get(0);
    auto largest = std::max_element(
        values.begin(), values.end(),
        [](double a, double b) { return std::fabs(a) < std::fabs(b); });
    *largest *= 0.98;
    forward.Set(0, values);
    EXPECT_FALSE(forward.Check().passed) << "one element";
  });
}

TEST(SelfCheckTest, FailsWrongSumsAndMasks) {
  ForEachSpec(
      {Result::kGradBias, Result::kGradResidual},
      [](const OperationSpec& spec) {
        CheckedOperation backward(spec);
        EXPECT_TRUE(backward.Check().passed);
        EXPECT_FALSE(backward.Check().forward.has_value());
        const auto bias = backward.Get(0), residual = backward.Get(1);

        // One addend of grad_bias is missing.
        auto g = backward.Get(Operand::kGradOutput);
        const auto open = backward.Get(Operand::kOutput);
        size_t missing = 0;
        for (size_t i = 0; i < g.size(); ++i) {
          const bool larger = std::fabs(g[i]) > std::fabs(g[missing]);
          if (open[i] > 0 && (open[missing] <= 0 || larger)) missing = i;
        }
        g[missing] = 0;
        backward.ComputeWith(Operand::kGradOutput, g);
        backward.Set(1, residual);
        SelfCheckReport report = backward.Check();
        EXPECT_FALSE(report.passed) << "a wrong bias sum";
        EXPECT_GT(*report.grad_bias_error, 1);
        EXPECT_LE(*report.grad_residual_error, 1);

        ConvOperation broken = backward.operation;
        broken.problem.relu = false;
        backward.Compute(broken);
        const auto unmasked = backward.Get(1);
        backward.Set(1, residual);
        EXPECT_FALSE(backward.Check().passed) << "a bias sum without its mask";

        backward.Set(0, bias);
        backward.Set(1, unmasked);
        report = backward.Check();
        EXPECT_FALSE(report.passed) << "a residual without its mask";
        EXPECT_GT(*report.grad_residual_error, 1);

        if (bias.size() > 1) {
          backward.Set(0, Rotated(bias));
          backward.Set(1, residual);
          EXPECT_FALSE(backward.Check().passed) << "sums of others";
        }
        backward.Set(0, bias);
        backward.Set(1, Rotated(residual));
        EXPECT_FALSE(backward.Check().passed) << "a residual off by one lane";
      });
}

TEST(SelfCheckTest, PassesNonFiniteOperandsWhereNothingCanBeSaid) {
  for (double value : {kInfinity, -kInfinity, std::nan("")}) {
    for (const std::vector<Result>& results :
         {std::vector<Result>{Result::kOutput}, kGradients}) {
      OperationSpec spec;
      spec.problem = *Parse("conv2d_n2_c3_o4_i5x6_k3x2_p1x1_b_res_relu");
      spec.results = results;
      const ConvOperation operation = MakeOperation(spec);
      for (Operand which : kAllOperands) {
        if (!operation.operand(which)) continue;
        CheckedOperation run(operation);
        auto values = run.Get(which);
        values[values.size() / 2] = value;
        run.Set(which, values);
        run.Compute(operation);
        EXPECT_TRUE(run.Check().passed) << value << " in " << NameOf(which);
      }
    }
  }
}

TEST(SelfCheckTest, PassesOutputsThatPaddingMadeNonFinite) {
  CheckedOperation forward(OperationSpec{.problem = *Parse(kProblems[0])});
  auto input = forward.Get(Operand::kInput);
  input[0] = kInfinity;
  forward.Set(Operand::kInput, input);
  forward.Compute(forward.operation);
  auto output = forward.Get(0);
  output.back() = std::nan("");
  forward.Set(0, output);
  EXPECT_TRUE(forward.Check().passed);
}

TEST(SelfCheckTest, FailsNonFiniteResultsOfFiniteData) {
  for (Result which :
       {Result::kOutput, Result::kGradBias, Result::kGradResidual}) {
    for (double value : {kInfinity, -kInfinity, std::nan("")}) {
      CheckedOperation run(
          OperationSpec{.problem = *Parse(kProblems[0]), .results = {which}});
      auto values = run.Get(size_t{0});
      values[0] = value;
      run.Set(size_t{0}, values);
      EXPECT_FALSE(run.Check().passed) << value << " in " << NameOf(which);
    }
  }
}

TEST(SelfCheckTest, FailsASumThatLostItsNan) {
  CheckedOperation backward(OperationSpec{.problem = *Parse(kProblems[0]),
                                          .results = {Result::kGradBias}});
  auto g = backward.Get(Operand::kGradOutput);
  g[0] = std::nan("");
  backward.Set(Operand::kGradOutput, g);
  EXPECT_FALSE(backward.Check().passed);
}

TEST(SelfCheckTest, PassesWhatOverflowsAsItIsStored) {
  for (const std::vector<Result>& results :
       {std::vector<Result>{Result::kOutput}, kGradients}) {
    OperationSpec spec;
    spec.problem = *Parse("conv2d_n2_c3_o4_i5x6_k3x2_p1x1_b_res_relu");
    spec.results = results;
    spec.dtype = spec.result_dtype = DataType::kF16;
    spec.scale = 1e5;
    CheckedOperation run(spec);
    EXPECT_TRUE(run.Check().passed);
    const size_t last = results.size() - 1;
    auto values = run.Get(last);
    EXPECT_GT(std::count(values.begin(), values.end(), kInfinity), 0);
    for (double& value : values) value = std::min(value, 65504.0);
    run.Set(last, values);
    EXPECT_FALSE(run.Check().passed) << "saturated";
  }
}

TEST(SelfCheckTest, RefusesWhatHasNothingToCheck) {
  for (Result result : {Result::kGradInput, Result::kGradWeight}) {
    const OperationSpec spec{.problem = *Parse(kProblems[0]),
                             .results = {result}};
    const auto check = SelfCheck::Make(Reference(), MakeOperation(spec), {});
    EXPECT_EQ(check.status().code(), absl::StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace convgrad::testing_support

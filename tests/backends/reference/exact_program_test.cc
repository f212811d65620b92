// Tests the oracle against PyTorch's results, central differences and adjoint
// identities.
#include "backends/reference/exact_program.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/program_list.h"

namespace convgrad::testing_support {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr DropoutSeed kSeed = {12345, 6};

void WriteAsItIs(Precision, Values*) {}

// Returns what `filled` of pytorch_programs.py returns.
Values ProgramFill(const std::string& name, const Dims& dims, bool is_index) {
  uint32_t salt = 0;
  for (const char c : name) salt += static_cast<uint32_t>(c) * 40503;
  const bool is_positive = name == "var" || (name == "w" && dims.size() == 1);
  Values values;
  for (uint32_t i = 0; i < CountOf(dims); ++i) {
    const uint32_t hash = (i * 2654435761U + salt) * 2246822519U >> 25;
    const double number = hash / 64.0 - 1;
    values.push_back(
        is_index ? hash % 4 : (is_positive ? std::fabs(number) + 0.5 : number));
  }
  return values;
}

class PytorchProgramTest : public testing::TestWithParam<ProgramCase> {
 protected:
  void SetUp() override {
    ProgramRequest request = RequestOf(GetParam(), ProgramPart::kBackward);
    operation_ = *ProgramOperation::Make(std::move(request));
    for (const ProgramInput& input : program().inputs) {
      values_[input.name] =
          ProgramFill(input.name, dims(input.name), input.is_index);
    }
    for (const ProgramParameter& parameter : program().parameters) {
      values_[parameter.name] = ProgramFill(parameter.name, parameter.dims,
                                            parameter.dtype == DataType::kI64);
    }
  }

  const Program& program() const { return operation_->program(); }
  const Dims& dims(const std::string& name) const {
    return operation_->shapes().dims.at(name);
  }
  Values OutputGradient() const { return ProgramFill("g", dims("y"), false); }
  // Returns all values.
  NamedValues Forward(NamedValues values) const {
    EXPECT_TRUE(ExactForward(*operation_, kSeed, WriteAsItIs, &values).ok());
    return values;
  }
  NamedValues Backward(const NamedValues& values) const {
    NamedValues gradients = {{"y", OutputGradient()}};
    ExactBackward(*operation_, kSeed, WriteAsItIs, values, &gradients);
    return gradients;
  }
  // Returns the product of y and its gradient.
  double Projection(const NamedValues& values) const {
    const Values y = Forward(values).at("y");
    const Values g = OutputGradient();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * g[i];
    return sum;
  }

  std::shared_ptr<const ProgramOperation> operation_;
  NamedValues values_;
};

TEST_P(PytorchProgramTest, GivesWhatPytorchGives) {
  const NamedValues values = Forward(values_);
  const NamedValues gradients = Backward(values);
  for (const std::string& line : GetParam().expected) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const std::vector<std::string> parts = absl::StrSplit(words[0], '#');
    const Values& got = (parts.size() == 1 ? values : gradients).at(parts[0]);
    ASSERT_EQ(got.size() + 1, words.size()) << words[0];
    for (size_t i = 0; i < got.size(); ++i) {
      double expected = 0;
      ASSERT_TRUE(absl::SimpleAtod(words[i + 1], &expected));
      EXPECT_NEAR(got[i], expected, 1e-12 * (1 + std::fabs(expected)))
          << words[0] << "[" << i << "]";
    }
  }
}

// The test requests each gradient alone, so that it finds a wrong element.
TEST_P(PytorchProgramTest, GradientsAreCentralDifferences) {
  // Moves values away from ties and kinks, which are at multiples of 1/64.
  for (auto& [name, values] : values_) {
    for (size_t i = 0; i < values.size() && name != "t"; ++i) {
      values[i] += 1e-3 * std::fmod(0.618 * static_cast<double>(i + 1), 1);
    }
  }
  const NamedValues gradients = Backward(Forward(values_));
  constexpr double kStep = 1e-5;
  for (const auto& [name, gradient] : gradients) {
    if (!values_.contains(name)) continue;
    NamedValues moved = values_;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double at = values_.at(name)[i];
      moved[name][i] = at + kStep;
      const double above = Projection(moved);
      moved[name][i] = at - kStep;
      const double below = Projection(moved);
      moved[name][i] = at;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep),
                  1e-7 * (1 + std::fabs(gradient[i])))
          << name << "[" << i << "]";
    }
  }
}

bool IsLinear(const ProgramStep& step) {
  constexpr Operator kLinear[] = {Operator::kConv,
                                  Operator::kConvTranspose,
                                  Operator::kLinear,
                                  Operator::kAvgPool,
                                  Operator::kAdaptiveAvgPool,
                                  Operator::kMean,
                                  Operator::kSum,
                                  Operator::kConcat,
                                  Operator::kFlatten,
                                  Operator::kPad,
                                  Operator::kIndexSelect,
                                  Operator::kUpsample,
                                  Operator::kNormalize,
                                  Operator::kDropout,
                                  Operator::kAdd,
                                  Operator::kSub,
                                  Operator::kNeg};
  const bool is_eval =
      step.op == Operator::kBatchNorm && !BoolAttribute(step, "training");
  return is_eval || absl::c_linear_search(kLinear, step.op);
}

// Checks <A x, g> = <x, A* g> for programs that are linear except for a
// constant.
TEST_P(PytorchProgramTest, LinearProgramsAndTheirGradientsAreAdjoint) {
  if (!absl::c_all_of(program().steps, IsLinear)) return;
  NamedValues zeros = values_;
  double expected = Projection(values_);
  const NamedValues gradients = Backward(Forward(values_));
  double sum = 0;
  for (const ProgramInput& input : program().inputs) {
    const Values& x = values_.at(input.name);
    for (size_t i = 0; i < x.size(); ++i) {
      sum += x[i] * gradients.at(input.name)[i];
    }
    zeros[input.name].assign(x.size(), 0);
  }
  expected -= Projection(zeros);
  EXPECT_NEAR(sum, expected, 1e-12 * (1 + std::fabs(expected)));
}

INSTANTIATE_TEST_SUITE_P(
    Programs, PytorchProgramTest,
    testing::ValuesIn(ReadProgramList(CONVGRAD_PYTORCH_PROGRAMS)),
    [](const auto& info) { return info.param.name; });

// Runs `steps` on x (and t), which makes y, forward.
absl::StatusOr<NamedValues> ValuesOf(const std::string& text, const Dims& x,
                                     NamedValues values,
                                     const std::vector<Dims>& others = {}) {
  ProgramCase given;
  given.program = std::make_shared<const Program>(*ParseProgram(text));
  given.inputs = {x};
  given.inputs.insert(given.inputs.end(), others.begin(), others.end());
  const auto operation =
      *ProgramOperation::Make(RequestOf(given, ProgramPart::kForward));
  const absl::Status status =
      ExactForward(*operation, kSeed, WriteAsItIs, &values);
  if (!status.ok()) return status;
  return values;
}

TEST(ExactProgramTest, CumulativeMomentumAveragesAllRuns) {
  const auto values = ValuesOf(
      "input x\nparameter m [1] fixed\nparameter v [1] fixed\n"
      "parameter n [] i64 fixed\n"
      "y = batch_norm(x, none, none, m, v, n, momentum=none, training=true)\n"
      "output y\n",
      {2, 1}, {{"x", {1, 3}}, {"m", {5}}, {"v", {8}}, {"n", {2}}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->at("n"), ElementsAre(3));
  EXPECT_NEAR(values->at("m")[0], 5 + (2.0 - 5) / 3, 1e-15);
  EXPECT_NEAR(values->at("v")[0], 8 + (2.0 - 8) / 3, 1e-15);  // unbiased
}

TEST(ExactProgramTest, SharedStatisticsAreUpdatedByEachStepInTurn) {
  const auto values = ValuesOf(
      "input x\nparameter m [1] fixed\nparameter v [1] fixed\n"
      "parameter n [] i64 fixed\n"
      "a = batch_norm(x, none, none, m, v, n, momentum=0.5, training=true)\n"
      "b = batch_norm(x, none, none, m, v, n, momentum=0.5, training=true)\n"
      "y = add(a, b)\noutput y\n",
      {2, 1}, {{"x", {1, 3}}, {"m", {0}}, {"v", {0}}, {"n", {0}}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->at("n"), ElementsAre(2));
  EXPECT_THAT(values->at("m"), ElementsAre(1.5));
}

TEST(ExactProgramTest, NanGoesThroughActivationsAndMaxima) {
  const double nan = std::nan("");
  const auto values = ValuesOf(
      "input x\na = relu(x)\nb = relu6(a)\nc = leaky_relu(b)\n"
      "y = max_pool(c, kernel_size=2, stride=1)\noutput y\n",
      {1, 1, 4}, {{"x", {1, nan, -1, 7}}});
  ASSERT_TRUE(values.ok()) << values.status();
  const Values& y = values->at("y");
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(y[2], 6);
}

TEST(ExactProgramTest, AConstantIsComparedInF32) {
  const auto values = ValuesOf("input x\ny = le(x, other=0.1)\noutput y\n",
                               {1, 3}, {{"x", {0.0999f, 0.1f, 0.1001f}}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->at("y"), ElementsAre(1, 1, 0));
}

TEST(ExactProgramTest, RefusesAClassThatIsNone) {
  const std::string text =
      "input x\ninput t index\ny = cross_entropy(x, t)\noutput y\n";
  EXPECT_TRUE(
      ValuesOf(text, {2, 2}, {{"x", {1, 2, 3, 4}}, {"t", {1, -100}}}, {{2}})
          .ok());
  const auto refused =
      ValuesOf(text, {2, 2}, {{"x", {1, 2, 3, 4}}, {"t", {1, 2}}}, {{2}});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(),
            "t[1]: found 2, expected a class from 0 to 1, or -100");
}

// A class without weight counts, as in PyTorch: its product with the infinite
// logarithm is NaN.
TEST(ExactProgramTest, AClassWithoutWeightCountsIfItIsTheTarget) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto loss_of = [&](const std::string& smoothing, double target) {
    return ValuesOf(
               "input x\ninput t index\nparameter w [3] fixed\n"
               "y = cross_entropy(x, t, w, label_smoothing=" +
                   smoothing + ")\noutput y\n",
               {2, 3},
               {{"x", {-inf, 1, 2, 0, 1, 2}},
                {"t", {target, 1}},
                {"w", {0, 1, 1}}},
               {{2}})
        ->at("y")[0];
  };
  EXPECT_TRUE(std::isnan(loss_of("0.0", 0)));
  EXPECT_NEAR(loss_of("0.0", 1), 1.3604338259813016, 1e-14);  // PyTorch's
  EXPECT_NEAR(loss_of("0.0", -100), 1.4076059644443804, 1e-14);
  EXPECT_TRUE(std::isnan(loss_of("0.1", 2)));
  EXPECT_NEAR(loss_of("0.1", -100), 1.3273524322962342, 1e-14);
}

// PyTorch's gradients: a clamp is flat at NaN and has no limit at infinity.
TEST(ExactProgramTest, AClampPassesGradientsBetweenItsLimits) {
  const double inf = std::numeric_limits<double>::infinity();
  const Values x = {std::nan(""), -inf, -1, 0, 1, inf};
  const auto gradient_of = [&](const std::string& step) {
    ProgramCase given;
    given.program = std::make_shared<const Program>(
        *ParseProgram("input x\ny = " + step + "\noutput y\n"));
    given.inputs = {{1, std::ssize(x)}};
    const auto operation =
        *ProgramOperation::Make(RequestOf(given, ProgramPart::kBackward));
    NamedValues values = {{"x", x}}, gradients = {{"y", Values(x.size(), 1)}};
    EXPECT_TRUE(ExactForward(*operation, kSeed, WriteAsItIs, &values).ok());
    ExactBackward(*operation, kSeed, WriteAsItIs, values, &gradients);
    return gradients.at("x");
  };
  EXPECT_THAT(gradient_of("clamp(x, min=-1, max=1)"),
              ElementsAre(0, 0, 0, 1, 0, 0));
  EXPECT_THAT(gradient_of("clamp(x, min=-1)"), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(gradient_of("clamp(x, max=1)"), ElementsAre(0, 1, 1, 1, 0, 0));
  EXPECT_THAT(gradient_of("hardtanh(x)"), ElementsAre(1, 0, 0, 1, 0, 0));
}

TEST(ExactProgramTest, DropoutKeepsWhatItsBitsSay) {
  const Values ones(4096, 1);
  const auto values =
      ValuesOf("input x\ny = dropout(x, p=0.25, training=true)\noutput y\n",
               {4, 1024}, {{"x", ones}});
  ASSERT_TRUE(values.ok()) << values.status();
  const Values& y = values->at("y");
  double kept = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const bool is_kept = DropoutWords(kSeed, 0, i / 4)[i % 4] >= 0x40000000;
    EXPECT_EQ(y[i], is_kept ? 1 / 0.75 : 0) << i;
    kept += is_kept ? 1 : 0;
  }
  EXPECT_NEAR(kept / 4096, 0.75, 0.03);  // 4 standard deviations
}

TEST(ExactProgramTest, DropoutByRowKeepsOrDropsWholeItems) {
  const auto values = ValuesOf(
      "input x\ny = dropout(x, by_row=true, training=true)\noutput y\n",
      {64, 3}, {{"x", Values(192, 1)}});
  ASSERT_TRUE(values.ok()) << values.status();
  const Values& y = values->at("y");
  double kept = 0;
  for (size_t n = 0; n < 64; ++n) {
    EXPECT_EQ(y[3 * n], y[3 * n + 1]);
    EXPECT_EQ(y[3 * n], y[3 * n + 2]);
    kept += y[3 * n] / 2;
  }
  EXPECT_NEAR(kept, 32, 16);
}

TEST(ExactProgramTest, AllIsDroppedAtOne) {
  const auto values =
      ValuesOf("input x\ny = dropout(x, p=1, training=true)\noutput y\n",
               {1, 2}, {{"x", {3, std::nan("")}}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at("y")[0], 0);
  EXPECT_TRUE(std::isnan(values->at("y")[1]));
}

}  // namespace
}  // namespace convgrad::testing_support

// Tests the oracle against published numbers, a second derivation that shares
// no index formula with it, adjoint identities and central differences.
#include "backends/reference/exact_convolution.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing_support::IntegerFill;
using testing_support::MakeOperation;
using testing_support::RealFill;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double>& At(ExactOperands& operands, Operand which) {
  return operands[static_cast<size_t>(which)];
}

std::vector<double> Compute(const ConvProblem& problem, Result which,
                            const ExactOperands& operands) {
  return ExactResult(MakeOperation({.problem = problem, .results = {which}}),
                     which, operands);
}

std::vector<double> Compute(const char* problem, Result which,
                            const ExactOperands& operands) {
  return Compute(*Parse(problem), which, operands);
}

int64_t Count(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         std::multiplies<>());
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Integers for every operand.
ExactOperands Integers(const ConvProblem& problem) {
  ExactOperands operands;
  for (Operand which : kAllOperands) {
    At(operands, which) = IntegerFill(Count(DimsOf(problem, which)),
                                      static_cast<uint64_t>(which));
  }
  return operands;
}

ExactOperands Reals(const ConvProblem& problem) {
  ExactOperands operands;
  for (Operand which : kAllOperands) {
    At(operands, which) =
        RealFill(Count(DimsOf(problem, which)), static_cast<uint64_t>(which),
                 DataType::kF32);
  }
  return operands;
}

ExactOperands Operands(
    std::initializer_list<std::pair<Operand, std::vector<double>>> values) {
  ExactOperands operands;
  for (const auto& [which, data] : values) At(operands, which) = data;
  return operands;
}

const std::vector<double> kZeroToEight = {0, 1, 2, 3, 4, 5, 6, 7, 8};
constexpr char kThreeByTwo[] = "conv2d_i3_k2";

// The example is from the two published articles on conv-bias-ReLU fusion and
// on NNEF's broadcasts: 3x3 input, 2x2 filter.
TEST(PublishedNumbersTest, ForwardWithAFilterOfOnes) {
  EXPECT_THAT(Compute(kThreeByTwo, Result::kOutput,
                      Operands({{Operand::kInput, kZeroToEight},
                                {Operand::kWeight, {1, 1, 1, 1}}})),
              ElementsAre(8, 12, 20, 24));
}

TEST(PublishedNumbersTest, GradWeightOfGradOutputOnes) {
  EXPECT_THAT(Compute(kThreeByTwo, Result::kGradWeight,
                      Operands({{Operand::kInput, kZeroToEight},
                                {Operand::kGradOutput, {1, 1, 1, 1}}})),
              ElementsAre(8, 12, 20, 24));
}

TEST(PublishedNumbersTest, GradInputOfGradOutputOnes) {
  EXPECT_THAT(Compute(kThreeByTwo, Result::kGradInput,
                      Operands({{Operand::kWeight, {0, 1, 2, 3}},
                                {Operand::kGradOutput, {1, 1, 1, 1}}})),
              ElementsAre(0, 1, 1, 2, 6, 4, 2, 5, 3));
}

// PyTorch's documentation describes a transposed convolution as scattered
// stamps.
TEST(PublishedNumbersTest, TransposedStampsTheFilter) {
  const auto operands = Operands(
      {{Operand::kInput, {0, 1, 2, 3}}, {Operand::kWeight, {0, 1, 2, 3}}});
  EXPECT_THAT(Compute("convtranspose2d_i2_k2", Result::kOutput, operands),
              ElementsAre(0, 0, 1, 0, 4, 6, 4, 12, 9));
  EXPECT_THAT(Compute("convtranspose2d_i2_k2_s2", Result::kOutput, operands),
              ElementsAre(0, 0, 0, 1, 0, 0, 2, 3, 0, 2, 0, 3, 4, 6, 6, 9));
}

// Output padding adds rows with the formula's values, not zeros.
TEST(PublishedNumbersTest, OutputPaddingUncoversPartOfTheStamp) {
  const auto operands =
      Operands({{Operand::kInput, {1, 10}}, {Operand::kWeight, {1, 2, 3}}});
  EXPECT_THAT(Compute("convtranspose1d_i2_k3_s2", Result::kOutput, operands),
              ElementsAre(1, 2, 13, 20, 30));
  EXPECT_THAT(Compute("convtranspose1d_i2_k3_s2_p1", Result::kOutput, operands),
              ElementsAre(2, 13, 20));
  EXPECT_THAT(
      Compute("convtranspose1d_i2_k3_s2_p1_op1", Result::kOutput, operands),
      ElementsAre(2, 13, 20, 30));
  EXPECT_THAT(
      Compute("convtranspose1d_i2_k3_s2_op1", Result::kOutput, operands),
      ElementsAre(1, 2, 13, 20, 30, 0));
}

TEST(PublishedNumbersTest, SingularBiasGetsTheSumOfEverything) {
  const auto operands =
      Operands({{Operand::kGradOutput, {1, 2, 3, 4, 5, 6, 7, 8}}});
  auto grad_bias = [&](const char* bias) {
    return Compute((std::string("conv1d_n2_o2_i2_k1_") + bias).c_str(),
                   Result::kGradBias, operands);
  };
  EXPECT_THAT(grad_bias("bscalar"), ElementsAre(36));
  EXPECT_THAT(grad_bias("b1"), ElementsAre(36));
  EXPECT_THAT(grad_bias("b1x1x1"), ElementsAre(36));
  EXPECT_THAT(grad_bias("b"), ElementsAre(14, 22));
  EXPECT_THAT(grad_bias("b1x2x1"), ElementsAre(14, 22));
  EXPECT_THAT(grad_bias("b2x1x1"), ElementsAre(10, 26));
  EXPECT_THAT(grad_bias("b1x1x2"), ElementsAre(16, 20));
  EXPECT_THAT(grad_bias("b2x2x2"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(FusedReluTest, ClosedMaskHidesNonFiniteGradients) {
  const auto operands =
      Operands({{Operand::kGradOutput, {kInf, kNaN, 3, 4, -kInf}},
                {Operand::kOutput, {0, -1, 2, kNaN, -0.0}}});
  EXPECT_THAT(Compute("conv1d_i5_k1_relu", Result::kGradResidual, operands),
              ElementsAre(0, 0, 3, 0, 0));
  EXPECT_THAT(Compute("conv1d_i5_k1_b_relu", Result::kGradBias, operands),
              ElementsAre(3));
}

TEST(FusedReluTest, ForwardKeepsNaNAndClosesMinusInfinity) {
  const auto y = Compute("conv1d_i4_k1_relu", Result::kOutput,
                         Operands({{Operand::kInput, {kNaN, -kInf, -2, kInf}},
                                   {Operand::kWeight, {1}}}));
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 0);
  EXPECT_FALSE(std::signbit(y[1]));
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], kInf);
}

TEST(FusedReluTest, BiasAndResidualComeBeforeTheRelu) {
  const auto y = Compute("conv1d_i2_k1_b_res_relu", Result::kOutput,
                         Operands({{Operand::kInput, {1, 2}},
                                   {Operand::kWeight, {3}},
                                   {Operand::kBias, {-4}},
                                   {Operand::kResidual, {-1, 5}}}));
  EXPECT_THAT(y, ElementsAre(0, 7));
}

TEST(ExactConvolutionTest, UnreadTailHasGradientZero) {
  const auto operands =
      Operands({{Operand::kWeight, {1, 2}}, {Operand::kGradOutput, {5, 7}}});
  EXPECT_THAT(Compute("conv1d_i6_k2_s3", Result::kGradInput, operands),
              ElementsAre(5, 10, 0, 7, 14, 0));
}

TEST(ExactConvolutionTest, BatchZeroGivesZeroGradients) {
  const ExactOperands none;
  EXPECT_THAT(Compute("conv1d_n0_i3_k2_b", Result::kGradWeight, none),
              ElementsAre(0, 0));
  EXPECT_THAT(Compute("conv1d_n0_i3_k2_b", Result::kGradBias, none),
              ElementsAre(0));
  EXPECT_THAT(Compute("conv1d_n0_i3_k2", Result::kGradInput, none),
              testing::IsEmpty());
}

class ShapesTest : public testing::TestWithParam<const char*> {
 protected:
  const ConvProblem problem_ = *Parse(GetParam());
};

// Computes one output element per axis position from a padded, dilated, stuffed
// copy of the input. It shares no index formula with the loops.
std::vector<double> Stuff(const std::vector<double>& line, int64_t step) {
  std::vector<double> stuffed((line.size() - 1) * step + 1);
  for (size_t i = 0; i < line.size(); ++i) stuffed[i * step] = line[i];
  return stuffed;
}

std::vector<double> SlowLine(const SpatialAxis& axis, bool transposed,
                             const std::vector<double>& x,
                             const std::vector<double>& w) {
  const std::vector<double> kernel = Stuff(w, axis.dilation);
  std::vector<double> y;
  if (!transposed) {
    std::vector<double> padded(axis.pad_begin);
    padded.insert(padded.end(), x.begin(), x.end());
    padded.resize(padded.size() + axis.pad_end);
    for (size_t at = 0; at + kernel.size() <= padded.size();
         at += axis.stride) {
      y.push_back(Dot(kernel, {padded.begin() + at, padded.end()}));
    }
    return y;
  }
  // A polynomial product of stuffed input and kernel, then cut.
  const std::vector<double> stuffed = Stuff(x, axis.stride);
  y.resize(stuffed.size() + kernel.size() - 1 + axis.output_padding);
  for (size_t i = 0; i < stuffed.size(); ++i) {
    for (size_t k = 0; k < kernel.size(); ++k)
      y[i + k] += stuffed[i] * kernel[k];
  }
  return {y.begin() + axis.pad_begin, y.end() - axis.pad_end};
}

class LinesTest : public ShapesTest {};

TEST_P(LinesTest, ForwardEqualsPaddedStuffedLines) {
  const ExactOperands operands = Integers(problem_);
  const SpatialAxis& axis = problem_.axes[0];
  EXPECT_THAT(Compute(problem_, Result::kOutput, operands),
              ElementsAreArray(
                  SlowLine(axis, problem_.transposed,
                           operands[static_cast<size_t>(Operand::kInput)],
                           operands[static_cast<size_t>(Operand::kWeight)])));
}

INSTANTIATE_TEST_SUITE_P(
    , LinesTest,
    testing::Values("conv1d_i9_k3", "conv1d_i9_k4_s2_pb1_pe3",
                    "conv1d_i9_k3_d3_p2", "conv1d_i10_k2_s3_d2_pb2_pe0",
                    "conv1d_i1_k1_s2_p4", "conv1d_i7_k1_s4",
                    "convtranspose1d_i5_k3", "convtranspose1d_i5_k4_s2_p1",
                    "convtranspose1d_i4_k2_s3_d2_pb0_pe2_op2",
                    "convtranspose1d_i4_k3_d3_pb3_pe1_op1",
                    "convtranspose1d_i4_k1_s3_op2"));

// A product of one line per axis convolves axis by axis; channels and batch
// are summed by hand. Ties groups and axis order to the lines above.
TEST_P(ShapesTest, ForwardOfSeparableDataIsTheProductOfItsLines) {
  std::vector<std::vector<double>> x, w, y;
  for (size_t i = 0; i < problem_.axes.size(); ++i) {
    const SpatialAxis& axis = problem_.axes[i];
    x.push_back(IntegerFill(axis.in, 10 + i));
    w.push_back(IntegerFill(axis.kernel, 20 + i));
    y.push_back(SlowLine(axis, problem_.transposed, x[i], w[i]));
  }
  auto value = [](const std::vector<std::vector<double>>& lines, int64_t at) {
    double product = 1;
    for (size_t i = lines.size(); i-- > 0;) {
      const auto extent = static_cast<int64_t>(lines[i].size());
      product *= lines[i][at % extent];
      at /= extent;
    }
    return product;
  };
  const int64_t batch = problem_.batch, in = problem_.in_channels,
                out = problem_.out_channels, groups = problem_.groups;
  const int64_t ig = in / groups, og = out / groups;
  const auto x_factor = IntegerFill(batch * in, 1);
  const auto w_factor = IntegerFill(in * og, 2);
  ExactOperands operands;
  auto fill = [&](Operand which, const std::vector<double>& factors,
                  const std::vector<std::vector<double>>& lines) {
    const int64_t count = Count(DimsOf(problem_, which));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t plane = count / static_cast<int64_t>(factors.size());
      At(operands, which)
          .push_back(factors[i / plane] * value(lines, i % plane));
    }
  };
  fill(Operand::kInput, x_factor, x);
  fill(Operand::kWeight, w_factor, w);
  std::vector<double> expected;
  const int64_t out_plane = Count(OutputDims(problem_)) / (batch * out);
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t o = 0; o < out; ++o) {
      double factor = 0;
      for (int64_t i = 0; i < ig; ++i) {
        const int64_t c = o / og * ig + i;
        factor += x_factor[n * in + c] *
                  w_factor[problem_.transposed ? c * og + o % og : o * ig + i];
      }
      for (int64_t p = 0; p < out_plane; ++p) {
        expected.push_back(factor * value(y, p));
      }
    }
  }
  EXPECT_THAT(Compute(problem_, Result::kOutput, operands),
              ElementsAreArray(expected));
}

TEST_P(ShapesTest, AdjointIdentitiesHoldExactly) {
  ExactOperands operands = Integers(problem_);
  const auto y = Compute(problem_, Result::kOutput, operands);
  const double forward = Dot(y, At(operands, Operand::kGradOutput));
  EXPECT_EQ(forward, Dot(At(operands, Operand::kInput),
                         Compute(problem_, Result::kGradInput, operands)));
  EXPECT_EQ(forward, Dot(At(operands, Operand::kWeight),
                         Compute(problem_, Result::kGradWeight, operands)));
}

// Checks d<relu?(conv)(operand), grad_output> against (f(v+h) - f(v-h)) / 2h,
// element by element. The check doesn't depend on the definition of
// convolution.
void CheckDifferences(const ConvProblem& problem, Operand operand,
                      Result gradient) {
  ExactOperands operands = Reals(problem);
  At(operands, Operand::kOutput) = Compute(problem, Result::kOutput, operands);
  const auto analytic = Compute(problem, gradient, operands);
  auto loss = [&] {
    return Dot(Compute(problem, Result::kOutput, operands),
               At(operands, Operand::kGradOutput));
  };
  constexpr double kStep = 1e-7;  // small enough to cross no ReLU kink
  ASSERT_EQ(analytic.size(), At(operands, operand).size());
  for (size_t i = 0; i < analytic.size(); ++i) {
    double& value = At(operands, operand)[i];
    const double saved = value;
    value = saved + kStep;
    const double above = loss();
    value = saved - kStep;
    const double below = loss();
    value = saved;
    ASSERT_NEAR(analytic[i], (above - below) / (2 * kStep), 1e-5)
        << ToString(problem) << " " << NameOf(gradient) << "[" << i << "]";
  }
}

TEST_P(ShapesTest, GradientsAreCentralDifferences) {
  ConvProblem problem = problem_;
  for (bool relu : {false, true}) {
    problem.relu = relu;
    for (const Dims& bias :
         {Dims{}, PerChannelBiasDims(problem), OutputDims(problem)}) {
      problem.bias = bias;
      CheckDifferences(problem, Operand::kBias, Result::kGradBias);
    }
    CheckDifferences(problem, Operand::kInput, Result::kGradInput);
    CheckDifferences(problem, Operand::kWeight, Result::kGradWeight);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , ShapesTest,
    testing::Values(
        "linear_n3_c4_o5", "linear_n2_c6_o4_g2", "conv1d_n2_c3_o2_i7_k3_p1",
        "conv1d_c2_o4_g2_i9_k2_s3_d2_pb2_pe1", "conv2d_n2_c2_o3_i4x5_k3x2_p1x0",
        "conv2d_c4_o6_g2_i5_k3_s2_p1", "conv2d_c3_o3_g3_i4_k3_p1",
        "conv2d_c2_o4_g2_i5_k2_s3", "conv2d_c2_o2_i5_k2_d3",
        "conv2d_c2_o2_i2_k1_p2", "conv2d_c2_o2_i1_k3_p1",
        "conv2d_c1_o2_i5x4_k3x2_pb2x0_pe0x1",
        "conv3d_c2_o2_i3x2x4_k2x1x3_s1x1x2_p0x0x1", "conv3d_c4_o4_g2_i2_k2_p1",
        "convtranspose1d_n2_c2_o3_i4_k3_s2_p1_op1",
        "convtranspose2d_c2_o3_i3x4_k3x2_s2x1_pb1x0_pe0x1",
        "convtranspose2d_c4_o6_g2_i3_k3_s2_p1_op1",
        "convtranspose2d_c2_o2_i3_k1_s2_op1",
        "convtranspose2d_c2_o2_i3_k2_d3_op2",
        "convtranspose3d_c2_o2_i2_k2_s2_op1", "convtranspose0d_n2_c4_o6_g2"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace convgrad

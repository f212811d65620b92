#include "backends/core/convolution/conv_problem.h"

#include <functional>
#include <limits>

#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// A valid 2-D problem: 1x4x5x5 -> 1x6x5x5.
ConvProblem Base() {
  ConvProblem problem;
  problem.in_channels = 4;
  problem.out_channels = 6;
  problem.axes.resize(2, SpatialAxis{.in = 5,
                                     .kernel = 3,
                                     .stride = 1,
                                     .dilation = 1,
                                     .pad_begin = 1,
                                     .pad_end = 1,
                                     .output_padding = 0,
                                     .out = 5});
  return problem;
}

ConvProblem With(const std::function<void(ConvProblem&)>& change) {
  ConvProblem problem = Base();
  change(problem);
  return problem;
}

struct BadProblem {
  std::string name;
  std::function<void(ConvProblem&)> change;
  Reason reason;
  std::string message;
};

class BadProblemTest : public testing::TestWithParam<BadProblem> {};

TEST_P(BadProblemTest, IsRefusedNamingFieldFoundAndExpected) {
  const absl::Status status = Validate(With(GetParam().change));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), GetParam().message);
  ASSERT_TRUE(DetailOf(status).has_value());
  EXPECT_EQ(DetailOf(status)->reason, GetParam().reason);
}

INSTANTIATE_TEST_SUITE_P(
    Ranges, BadProblemTest,
    testing::Values(
        BadProblem{"NegativeBatch", [](auto& p) { p.batch = -1; },
                   Reason::kOutOfRange,
                   "problem.input_dims[0]: found -1, expected at least 0"},
        BadProblem{"NoInputChannels", [](auto& p) { p.in_channels = 0; },
                   Reason::kOutOfRange,
                   "problem.input_dims[1]: found 0, expected at least 1"},
        BadProblem{"NoOutputChannels", [](auto& p) { p.out_channels = 0; },
                   Reason::kOutOfRange,
                   "problem.out_channels: found 0, expected at least 1"},
        BadProblem{"NoGroups", [](auto& p) { p.groups = 0; },
                   Reason::kOutOfRange,
                   "problem.groups: found 0, expected at least 1"},
        BadProblem{"EmptySpatialAxis", [](auto& p) { p.axes[1].in = 0; },
                   Reason::kOutOfRange,
                   "problem.input_dims[3]: found 0, expected at least 1"},
        BadProblem{"EmptyKernelAxis", [](auto& p) { p.axes[0].kernel = 0; },
                   Reason::kOutOfRange,
                   "problem.kernel[0]: found 0, expected at least 1"},
        BadProblem{"NoStride", [](auto& p) { p.axes[1].stride = 0; },
                   Reason::kOutOfRange,
                   "problem.stride[1]: found 0, expected at least 1"},
        BadProblem{"ZeroDilation", [](auto& p) { p.axes[0].dilation = 0; },
                   Reason::kOutOfRange,
                   "problem.dilation[0]: found 0, expected at least 1"},
        BadProblem{"NegativePadBegin",
                   [](auto& p) { p.axes[0].pad_begin = -1; },
                   Reason::kOutOfRange,
                   "problem.pad_begin[0]: found -1, expected at least 0"},
        BadProblem{"NegativePadEnd", [](auto& p) { p.axes[1].pad_end = -2; },
                   Reason::kOutOfRange,
                   "problem.pad_end[1]: found -2, expected at least 0"},
        BadProblem{"FourAxes", [](auto& p) { p.axes.resize(4, p.axes[0]); },
                   Reason::kOutOfRange,
                   "problem.input_dims: found 4 spatial axes, expected 0 to "
                   "3"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Shapes, BadProblemTest,
    testing::Values(
        BadProblem{"InputChannelsNotDivisible", [](auto& p) { p.groups = 3; },
                   Reason::kShapeMismatch,
                   "problem.input_dims[1]: found 4, expected a multiple of "
                   "groups = 3"},
        BadProblem{"OutputChannelsNotDivisible", [](auto& p) { p.groups = 4; },
                   Reason::kShapeMismatch,
                   "problem.out_channels: found 6, expected a multiple of "
                   "groups = 4"},
        BadProblem{"KernelLargerThanPaddedInput",
                   [](auto& p) { p.axes[0].kernel = 8; },
                   Reason::kShapeMismatch,
                   "problem.kernel[0]: found 8 (8 with dilation 1), expected "
                   "a dilated kernel not larger than the padded input, 7"},
        BadProblem{"DilatedKernelLargerThanPaddedInput",
                   [](auto& p) { p.axes[1].dilation = 4; },
                   Reason::kShapeMismatch,
                   "problem.kernel[1]: found 3 (9 with dilation 4), expected "
                   "a dilated kernel not larger than the padded input, 7"},
        BadProblem{"OutputDisagrees", [](auto& p) { p.axes[1].out = 4; },
                   Reason::kShapeMismatch,
                   "problem.output_dims[1]: found 4, expected 5"},
        BadProblem{"OutputPaddingOfOrdinaryConvolution",
                   [](auto& p) { p.axes[0].output_padding = 1; },
                   Reason::kOutOfRange,
                   "problem.output_padding[0]: found 1, expected 0 unless the "
                   "convolution is transposed"},
        BadProblem{"OutputPaddingNotBelowStrideAndDilation",
                   [](auto& p) {
                     p.transposed = true;
                     p.axes[0].stride = 2;
                     p.axes[0].output_padding = 2;
                   },
                   Reason::kOutOfRange,
                   "problem.output_padding[0]: found 2, expected less than "
                   "max(stride, dilation) = 2"},
        BadProblem{"TransposedOutputBelowOne",
                   [](auto& p) {
                     p.transposed = true;
                     p.axes[0].in = 1;
                     p.axes[0].pad_begin = 2;
                   },
                   Reason::kShapeMismatch,
                   "problem.output_dims[0]: found 0, expected at least 1"},
        BadProblem{"BiasOfAnotherShape", [](auto& p) { p.bias = Dims{5}; },
                   Reason::kShapeMismatch,
                   "problem.bias: found [5], expected [], [1], [6], or each "
                   "axis 1 or that of the output, [1,6,5,5]"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Overflow, BadProblemTest,
    testing::Values(
        BadProblem{"Input",
                   [](auto& p) {
                     p.batch = int64_t{1} << 31;
                     p.in_channels = p.out_channels = int64_t{1} << 31;
                   },
                   Reason::kOverflow,
                   "problem.input_dims: found [2147483648,2147483648,5,5], "
                   "expected sizes below 2^63 bytes"},
        BadProblem{"Weight",
                   [](auto& p) {
                     p.in_channels = int64_t{1} << 31;
                     p.out_channels = int64_t{1} << 31;
                   },
                   Reason::kOverflow,
                   "problem.kernel: found [2147483648,2147483648,3,3], "
                   "expected sizes below 2^63 bytes"},
        BadProblem{"HiddenByBatchZero",
                   [](auto& p) {
                     p.batch = 0;
                     p.in_channels = int64_t{1} << 60;
                   },
                   Reason::kOverflow,
                   "problem.input_dims: found [0,1152921504606846976,5,5], "
                   "expected sizes below 2^63 bytes"},
        BadProblem{"Dilation", [](auto& p) { p.axes[0].dilation = kMost; },
                   Reason::kOverflow,
                   "problem.dilation[0]: found 9223372036854775807, expected "
                   "sizes below 2^63 bytes"},
        BadProblem{
            "Pads",
            [](auto& p) { p.axes[0].pad_begin = p.axes[0].pad_end = kMost; },
            Reason::kOverflow,
            "problem.pad_end[0]: found 9223372036854775807, expected "
            "sizes below 2^63 bytes"},
        BadProblem{"TransposedStride",
                   [](auto& p) {
                     p.transposed = true;
                     p.axes[1].stride = kMost;
                   },
                   Reason::kOverflow,
                   "problem.input_dims[3]: found 5, expected sizes below 2^63 "
                   "bytes"}),
    [](const auto& info) { return info.param.name; });

TEST(ConvProblemTest, AcceptsTheBaseProblem) {
  EXPECT_TRUE(Validate(Base()).ok()) << Validate(Base());
  EXPECT_TRUE(Validate(ConvProblem{}).ok());
}

TEST(ConvProblemTest, AcceptsBatchZeroAndWindowsThatSeeOnlyPadding) {
  EXPECT_TRUE(Validate(With([](auto& p) { p.batch = 0; })).ok());
  EXPECT_TRUE(Validate(With([](auto& p) {
                for (auto& axis : p.axes) {
                  axis = {.in = 1, .kernel = 1, .pad_begin = 3, .out = 4};
                }
              })).ok());
}

TEST(ConvProblemTest, OutputPaddingMayReachStrideWhereDilationIsLarger) {
  ConvProblem problem = With([](auto& p) {
    p.transposed = true;
    for (auto& axis : p.axes) {
      axis = {
          .in = 4, .kernel = 3, .dilation = 3, .output_padding = 2, .out = 12};
    }
  });
  EXPECT_TRUE(Validate(problem).ok()) << Validate(problem);
}

TEST(ConvProblemTest, DimsFollowTheContract) {
  ConvProblem problem = Base();
  problem.groups = 2;
  EXPECT_THAT(InputDims(problem), ElementsAre(1, 4, 5, 5));
  EXPECT_THAT(WeightDims(problem), ElementsAre(6, 2, 3, 3));
  EXPECT_THAT(OutputDims(problem), ElementsAre(1, 6, 5, 5));
  EXPECT_THAT(PerChannelBiasDims(problem), ElementsAre(6));
  problem.transposed = true;
  EXPECT_THAT(WeightDims(problem), ElementsAre(4, 3, 3, 3));
}

TEST(ConvProblemTest, BiasShapesOfTheContract) {
  const ConvProblem problem = With([](auto& p) { p.batch = 2; });
  for (const Dims& bias :
       {Dims{}, Dims{1}, Dims{6}, Dims{1, 6, 1, 1}, Dims{1, 1, 5, 5},
        Dims{2, 1, 1, 1}, Dims{2, 6, 5, 5}, Dims{1, 1, 1, 1}}) {
    EXPECT_TRUE(IsBiasShape(problem, bias)) << testing::PrintToString(bias);
  }
  for (const Dims& bias : {Dims{2}, Dims{1, 6}, Dims{6, 1, 1}, Dims{1, 5, 1, 1},
                           Dims{1, 6, 1, 1, 1}, Dims{0, 6, 1, 1}}) {
    EXPECT_FALSE(IsBiasShape(problem, bias)) << testing::PrintToString(bias);
  }
}

TEST(ConvProblemTest, BiasExtentsMayBeZeroWhereTheOutputsAre) {
  const ConvProblem problem = With([](auto& p) { p.batch = 0; });
  EXPECT_TRUE(IsBiasShape(problem, {0, 6, 1, 1}));
}

TEST(ConvProblemTest, BiasBroadcastsAsTheOutputsRank) {
  const ConvProblem problem = Base();
  EXPECT_THAT(BroadcastBiasDims(problem, {}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(BroadcastBiasDims(problem, {1}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(BroadcastBiasDims(problem, {6}), ElementsAre(1, 6, 1, 1));
  EXPECT_THAT(BroadcastBiasDims(problem, {1, 1, 5, 1}),
              ElementsAre(1, 1, 5, 1));
  ConvProblem linear;
  linear.out_channels = 3;
  EXPECT_THAT(BroadcastBiasDims(linear, {3}), ElementsAre(1, 3));
}

TEST(ConvProblemTest, MultiplyAddsCountPaddedWindowsAndSaturate) {
  EXPECT_EQ(MultiplyAdds(Base()), 4 * 6 * 25 * 9);
  EXPECT_EQ(MultiplyAdds(With([](auto& p) { p.groups = 2; })), 2 * 6 * 25 * 9);
  EXPECT_EQ(MultiplyAdds(With([](auto& p) {
              p.in_channels = p.out_channels = int64_t{1} << 29;
              p.batch = int64_t{1} << 30;
            })),
            kMost);
}

TEST(ConvProblemTest, MultiplyAddsOfTransposedAreThoseOfItsMirror) {
  const auto problem = *Parse("convtranspose2d_n2_c4_o6_i5_k3_s2_p1");
  EXPECT_EQ(MultiplyAdds(problem), 2 * 4 * 6 * 25 * 9);
}

TEST(ResolveTest, ExplicitPadsGiveTheFormulasExtent) {
  ConvProblem problem = Base();
  problem.axes[0].stride = 2;
  problem.axes[0].in = 6;
  const auto resolved = Resolve(problem, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->axes[0].out, 3);  // floor((6+2-3)/2)+1
}

TEST(ResolveTest, GivenOutputMustAgree) {
  ShapeHints hints;
  hints.output = Dims{5, 4};
  EXPECT_EQ(Resolve(Base(), hints).status().message(),
            "problem.output_dims[1]: found 4, expected 5");
  hints.output = Dims{5};
  EXPECT_EQ(Resolve(Base(), hints).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ResolveTest, NegativeOrHugeOutputDimsAreRefused) {
  for (int64_t extent : {kMost, -kMost, std::numeric_limits<int64_t>::min()}) {
    for (Padding padding : {Padding::kExplicit, Padding::kValid,
                            Padding::kSameUpper, Padding::kSameLower}) {
      ShapeHints hints;
      hints.padding = padding;
      hints.output = Dims{extent, extent};
      ConvProblem problem = Base();
      problem.transposed = true;
      problem.axes[0].pad_begin = problem.axes[0].pad_end = 1 << 20;
      EXPECT_EQ(Resolve(problem, hints).status().code(),
                absl::StatusCode::kInvalidArgument)
          << extent;
    }
  }
}

// problem, pad_begin, pad_end, output_padding, out of its one axis.
struct Resolved {
  const char* text;
  int64_t pad_begin, pad_end, output_padding, out;
};

class NamedPaddingTest : public testing::TestWithParam<Resolved> {};

TEST_P(NamedPaddingTest, ResolvesAsFrameworksDo) {
  const auto problem = Parse(GetParam().text);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const SpatialAxis& axis = problem->axes[0];
  EXPECT_EQ(axis.pad_begin, GetParam().pad_begin);
  EXPECT_EQ(axis.pad_end, GetParam().pad_end);
  EXPECT_EQ(axis.output_padding, GetParam().output_padding);
  EXPECT_EQ(axis.out, GetParam().out);
}

INSTANTIATE_TEST_SUITE_P(
    , NamedPaddingTest,
    testing::Values(Resolved{"conv1d_i7_k3_pvalid", 0, 0, 0, 5},
                    Resolved{"conv1d_i7_k3_psame", 1, 1, 0, 7},
                    Resolved{"conv1d_i7_k4_psame", 1, 2, 0, 7},
                    Resolved{"conv1d_i7_k4_psamelower", 2, 1, 0, 7},
                    Resolved{"conv1d_i6_k3_s2_psame", 0, 1, 0, 3},
                    Resolved{"conv1d_i6_k3_s2_psamelower", 1, 0, 0, 3},
                    Resolved{"conv1d_i5_k1_s3_psame", 0, 0, 0, 2},
                    Resolved{"conv1d_i7_k3_d2_psame", 2, 2, 0, 7},
                    Resolved{"convtranspose1d_i3_k3_s2_pvalid", 0, 0, 0, 7},
                    Resolved{"convtranspose1d_i3_k3_s2_psame", 0, 1, 0, 6},
                    Resolved{"convtranspose1d_i3_k3_s2_psamelower", 1, 0, 0, 6},
                    Resolved{"convtranspose1d_i3_k3_s2_psame_y5", 1, 1, 0, 5},
                    Resolved{"convtranspose1d_i3_k1_s2_psame", 0, 0, 1, 6},
                    Resolved{"convtranspose1d_i3_k3_s2_pvalid_y8", 0, 0, 1, 8},
                    Resolved{"convtranspose1d_i3_k3_s2_p1_y6", 1, 1, 1, 6},
                    Resolved{"convtranspose1d_i3_k3_s2_p1_op1_y6", 1, 1, 1,
                             6}));

TEST(ResolveTest, DerivedOutputPaddingMustAgreeWithTheGivenOne) {
  const auto problem = Parse("convtranspose1d_i3_k3_s2_p1_op0_y6");
  EXPECT_EQ(problem.status().message(),
            "problem.output_padding[0]: found 0, expected 1, which "
            "output_dims implies");
}

TEST(ResolveTest, OutputDimsOutsideTheReachOfOutputPaddingAreRefused) {
  EXPECT_THAT(
      std::string(Parse("convtranspose1d_i3_k3_s2_p1_y4").status().message()),
      HasSubstr("problem.output_dims[0]: found 4, expected at least 5"));
  EXPECT_THAT(
      std::string(Parse("convtranspose1d_i3_k3_s2_p1_y7").status().message()),
      HasSubstr("output_padding[0]: found 2, expected less than"));
}

}  // namespace
}  // namespace convgrad

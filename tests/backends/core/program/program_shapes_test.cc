#include "backends/core/program/program_shapes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/program/operators/convolution.h"
#include "backends/core/program/operators/windows/pooling.h"
#include "backends/core/program/operators/windows/upsample.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns y's dims of a program that computes `step` from x, p and t.
absl::StatusOr<Dims> DimsOf(const std::string& step, const Dims& x,
                            const std::string& declarations = "") {
  const auto program = ParseProgram(
      absl::StrCat("input x\n", declarations, "y = ", step, "\noutput y\n"));
  EXPECT_TRUE(program.ok()) << program.status();
  const auto shapes = InferShapes(*program, {x});
  if (!shapes.ok()) return shapes.status();
  return shapes->dims.at("y");
}

std::string ErrorOf(const std::string& step, const Dims& x,
                    const std::string& declarations = "") {
  return std::string(DimsOf(step, x, declarations).status().message());
}

constexpr char kWeight[] = "parameter w [6, 2, 3, 5]\n";

TEST(ProgramShapesTest, Convolutions) {
  EXPECT_THAT(*DimsOf("conv(x, w)", {1, 2, 8, 9}, kWeight),
              ElementsAre(1, 6, 6, 5));
  EXPECT_THAT(*DimsOf("conv(x, w, groups=3, stride=[2, 1], padding=2, "
                      "dilation=2)",
                      {1, 6, 8, 9}, kWeight),
              ElementsAre(1, 6, 4, 5));
  EXPECT_THAT(*DimsOf("conv(x, w, padding=same, dilation=[3, 2])", {1, 2, 8, 9},
                      kWeight),
              ElementsAre(1, 6, 8, 9));
  EXPECT_THAT(*DimsOf("conv_transpose(x, w, stride=2, output_padding=1)",
                      {1, 6, 8, 9}, kWeight),
              ElementsAre(1, 2, 18, 22));
  EXPECT_THAT(*DimsOf("linear(x, w)", {4, 3}, "parameter w [7, 3]\n"),
              ElementsAre(4, 7));
}

TEST(ProgramShapesTest, SamePaddingPutsTheOddPadAtTheEnd) {
  const Program program = *ParseProgram(
      "input x\nparameter w [1, 1, 4]\n"
      "y = conv(x, w, padding=same)\noutput y\n");
  const auto shapes = InferShapes(program, {{1, 1, 9}});
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  const ConvProblem problem = ProblemOf(program.steps[0], *shapes);
  EXPECT_EQ(problem.axes[0].pad_begin, 1);
  EXPECT_EQ(problem.axes[0].pad_end, 2);
  EXPECT_THAT(shapes->flops, ElementsAre(2 * 9 * 4));
}

TEST(ProgramShapesTest, Poolings) {
  EXPECT_THAT(
      *DimsOf("max_pool(x, kernel_size=3, stride=2, padding=1)", {1, 2, 7, 8}),
      ElementsAre(1, 2, 4, 4));
  EXPECT_THAT(*DimsOf("max_pool(x, kernel_size=2)", {1, 2, 7}),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(*DimsOf("max_pool(x, kernel_size=2, ceil_mode=true)", {1, 2, 7}),
              ElementsAre(1, 2, 4));
  EXPECT_THAT(*DimsOf("max_pool(x, kernel_size=2, dilation=3)", {1, 2, 8, 8}),
              ElementsAre(1, 2, 3, 3));
  EXPECT_THAT(*DimsOf("adaptive_avg_pool(x, output_size=[1, 3])", {1, 2, 7, 7}),
              ElementsAre(1, 2, 1, 3));
}

TEST(ProgramShapesTest, NoWindowBeginsInTheRightPad) {
  // (5 + 2 - 2) / 3 rounds up to 2, but a third window would begin at 5.
  EXPECT_THAT(*DimsOf("avg_pool(x, kernel_size=2, stride=3, padding=1, "
                      "ceil_mode=true)",
                      {1, 1, 5}),
              ElementsAre(1, 1, 2));
}

TEST(ProgramShapesTest, CeilModeHasWindowsBeyondThePaddedInput) {
  EXPECT_THAT(*DimsOf("max_pool(x, kernel_size=3, stride=2, ceil_mode=true)",
                      {1, 1, 2}),
              ElementsAre(1, 1, 1));
  EXPECT_THAT(*DimsOf("avg_pool(x, kernel_size=9, stride=7, padding=1, "
                      "ceil_mode=true)",
                      {1, 1, 1, 2}),
              ElementsAre(1, 1, 1, 1));
  // 5 + 0 - 1 < 6: PyTorch would have no window at all.
  EXPECT_THAT(ErrorOf("max_pool(x, kernel_size=6, stride=3, ceil_mode=true)",
                      {1, 1, 3}),
              HasSubstr("found 6 (6 with dilation 1), expected a window not "
                        "larger than the padded input and a stride - 1, 5"));
}

TEST(ProgramShapesTest, PoolAxesReachAsFarAsTheLastWindow) {
  const Program program = *ParseProgram(
      "input x\ny = max_pool(x, kernel_size=3, stride=2, ceil_mode=true)\n"
      "output y\n");
  const auto shapes = InferShapes(program, {{1, 1, 6}});
  const auto axes = PoolAxesOf(program.steps[0], *shapes);
  ASSERT_EQ(axes.size(), 1);
  EXPECT_EQ(axes[0].out, 3);
  EXPECT_EQ(axes[0].pad_end, 1);
}

// Returns the first input of each output along the last axis.
std::vector<int64_t> SourcesOf(const std::string& step, const Dims& dims) {
  const Program program =
      *ParseProgram("input x\ny = upsample(x, " + step + ")\noutput y\n");
  const auto shapes = InferShapes(program, {dims});
  const UpsampleAxis axis = UpsampleAxesOf(program.steps[0], *shapes).back();
  const bool is_linear = WordAttribute(program.steps[0], "mode") == "bilinear";
  std::vector<int64_t> sources;
  for (int64_t i = 0; i < axis.out; ++i) {
    const LinearSource linear = LinearSourceOf(axis, i);
    sources.push_back(is_linear ? linear.low : NearestSource(axis, i));
    if (is_linear && linear.weight != 0) sources.back() = -1;
  }
  return sources;
}

TEST(ProgramShapesTest, ImagesFollowTheExtentsBeforeTheFactor) {
  EXPECT_THAT(SourcesOf("scale_factor=[2, 1.1]", {1, 2, 3, 4}),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SourcesOf("scale_factor=2.1", {1, 2, 3, 3}),
              ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(SourcesOf("scale_factor=1.1, mode=bilinear", {1, 2, 3, 4}),
              ElementsAre(0, 1, 2, 3));
  // In other cases PyTorch uses the factor.
  EXPECT_THAT(SourcesOf("scale_factor=2.5", {1, 2, 3, 3}),
              ElementsAre(0, 0, 0, 1, 1, 2, 2));
  EXPECT_THAT(SourcesOf("scale_factor=1.1", {1, 2, 4}),
              ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(SourcesOf("scale_factor=1.1", {1, 2, 4, 4, 4}),
              ElementsAre(0, 0, 1, 2));
}

TEST(ProgramShapesTest, FlopsCountWindowsAndElements) {
  const auto macs = [](const std::string& step, const Dims& x) {
    const Program program =
        *ParseProgram("input x\ny = " + step + "\noutput y\n");
    return InferShapes(program, {x})->flops[0] / 2;
  };
  EXPECT_EQ(macs("max_pool(x, kernel_size=3, padding=1, stride=2)", {1, 2, 7}),
            2 * 4 * 3);
  EXPECT_EQ(macs("avg_pool(x, kernel_size=2)", {1, 2, 4, 6}), 2 * 6 * 4);
  EXPECT_EQ(macs("max_pool(x, kernel_size=6000, stride=1)", {1, 1, 12000}),
            6001 * 6000);
  EXPECT_EQ(macs("adaptive_avg_pool(x, output_size=2)", {1, 3, 8, 8}), 3 * 64);
  EXPECT_EQ(macs("adaptive_avg_pool(x, output_size=3)", {1, 1, 8}), 8 + 3);
  EXPECT_EQ(macs("upsample(x, size=10000000)", {1, 1, 1}), 10'000'000);
  EXPECT_EQ(macs("upsample(x, mode=bilinear, size=6)", {1, 1, 3, 3}), 36 * 4);
  EXPECT_EQ(macs("relu(x)", {2, 3, 4}), 24);
  EXPECT_EQ(macs("mse(x, x)", {2, 3}), 6);
  EXPECT_EQ(macs("flatten(x)", {2, 3, 4}), 0);
}

TEST(ProgramShapesTest, OthersKeepOrChangeTheirDims) {
  EXPECT_THAT(*DimsOf("flatten(x)", {2, 3, 4, 5}), ElementsAre(2, 60));
  EXPECT_THAT(*DimsOf("concat(x, x, x)", {2, 3, 4}), ElementsAre(2, 9, 4));
  EXPECT_THAT(*DimsOf("upsample(x, scale_factor=[2, 1.5])", {2, 3, 4, 5}),
              ElementsAre(2, 3, 8, 7));
  EXPECT_THAT(*DimsOf("upsample(x, size=9)", {2, 3, 4}), ElementsAre(2, 3, 9));
  EXPECT_THAT(*DimsOf("mse(x, x)", {2, 3}), ElementsAre());
  EXPECT_THAT(*DimsOf("normalize(x, mean=[1, 2, 3], std=2)", {2, 3, 4, 4}),
              ElementsAre(2, 3, 4, 4));
}

TEST(ProgramShapesTest, Moves) {
  EXPECT_THAT(*DimsOf("pad(x, pads=[1, 2, 3, 0])", {2, 3, 4, 5}),
              ElementsAre(2, 3, 7, 8));
  EXPECT_THAT(*DimsOf("index_select(x, i, axis=-2)", {2, 3, 4},
                      "parameter i [5, 6] i64 fixed\n"),
              ElementsAre(2, 5, 6, 4));
  EXPECT_THAT(ErrorOf("pad(x, pads=1)", {2, 3}), HasSubstr("1 numbers"));
  EXPECT_EQ(ErrorOf("pad(x, pads=[0, 0, 0, 0])", {2, 3}),
            "steps[0] (y).pads: found 4 numbers, expected two for each of the "
            "last axes of [2,3], the first axis never among them");
  EXPECT_THAT(ErrorOf("pad(x, pads=[0, 4], mode=reflect)", {2, 4}),
              HasSubstr(".pads: found 4, expected at most 3 of mode=reflect"));
  EXPECT_THAT(ErrorOf("pad(x, pads=[5, 0], mode=circular)", {2, 4}),
              HasSubstr("at most 4 of mode=circular"));
  EXPECT_THAT(ErrorOf("index_select(x, i, axis=2)", {2, 3},
                      "parameter i [5] i64 fixed\n"),
              HasSubstr(".axis: found 2, expected an axis of [2,3]"));
  EXPECT_THAT(ErrorOf("index_select(x, i, axis=1)", {2, 3, 4},
                      "parameter i [1, 1, 1, 1, 1] i64 fixed\n"),
              HasSubstr("a result of rank 6 at most"));
}

TEST(ProgramShapesTest, Reductions) {
  EXPECT_THAT(*DimsOf("mean(x, dim=[-1, 1])", {2, 3, 4, 5}), ElementsAre(2, 4));
  EXPECT_THAT(*DimsOf("amax(x, dim=0, keepdim=true)", {2, 3}),
              ElementsAre(1, 3));
  EXPECT_EQ(ErrorOf("sum(x, dim=2)", {2, 3}),
            "steps[0] (y).dim: found 2, expected axes of [2,3], each once");
  EXPECT_THAT(ErrorOf("sum(x, dim=-3)", {2, 3}), HasSubstr("found -3"));
  EXPECT_THAT(ErrorOf("sum(x, dim=[1, -1])", {2, 3}), HasSubstr("each once"));
  EXPECT_THAT(ErrorOf("norm(x, dim=1)", {2, 3}),
              HasSubstr("two axes at least, or keepdim=true"));
  EXPECT_THAT(ErrorOf("group_norm(x, groups=2)", {2, 3, 4}),
              HasSubstr(".groups: found 2, expected a divisor"));
}

TEST(ProgramShapesTest, ErrorsNameStepOperandFoundAndExpected) {
  EXPECT_EQ(ErrorOf("conv(x, w)", {1, 3, 8, 9}, kWeight),
            "steps[0] (y).weight: found [6,2,3,5], expected [6,3,3,5]");
  EXPECT_THAT(ErrorOf("conv(x, w)", {1, 2, 2, 9}, kWeight),
              HasSubstr("steps[0] (y).problem.kernel[0]: found 3"));
  EXPECT_THAT(ErrorOf("conv(x, w)", {1, 2, 8}, kWeight), HasSubstr("rank"));
  EXPECT_EQ(ErrorOf("conv(x, x)", {2, 3}),
            "steps[0] (y).weight: found [2,3], expected rank 3 to 5");
  EXPECT_THAT(
      ErrorOf("conv(x, w, padding=same, stride=2)", {1, 2, 8, 9}, kWeight),
      HasSubstr(".stride: found 2"));
  EXPECT_THAT(ErrorOf("conv(x, w, stride=[1, 1, 1])", {1, 2, 8, 9}, kWeight),
              HasSubstr("3 numbers"));
  EXPECT_THAT(ErrorOf("max_pool(x, kernel_size=3, padding=2)", {1, 2, 8}),
              HasSubstr("at most half"));
  EXPECT_THAT(ErrorOf("max_pool(x, kernel_size=9)", {1, 2, 8}),
              HasSubstr("padded input, 8"));
  EXPECT_THAT(ErrorOf("max_pool(x, kernel_size=2, dilation="
                      "9223372036854775807)",
                      {1, 2, 8}),
              HasSubstr(".kernel_size: found 2, expected sizes below 2^63"));
  EXPECT_THAT(ErrorOf("max_pool(x, kernel_size=9)", {1, 2}),
              HasSubstr("(N, C, spatial...)"));
  EXPECT_THAT(ErrorOf("batch_norm(x, training=true)", {1, 2, 1, 1}),
              HasSubstr("more than one value per channel"));
  EXPECT_THAT(ErrorOf("batch_norm(x, w, training=true)", {2, 2, 1, 1},
                      "parameter w [3]\n"),
              HasSubstr(".weight: found [3]"));
  EXPECT_THAT(ErrorOf("upsample(x, size=9, mode=bilinear)", {2, 3, 4}),
              HasSubstr("rank 4"));
  EXPECT_THAT(ErrorOf("upsample(x, size=9, mode=trilinear)", {2, 3, 4, 4}),
              HasSubstr("rank 5"));
  EXPECT_THAT(ErrorOf("upsample(x, size=9, mode=linear)", {2, 3, 4, 4}),
              HasSubstr("rank 3"));
  EXPECT_THAT(ErrorOf("normalize(x, mean=[1, 2], std=2)", {2, 3, 4, 4}),
              HasSubstr(".mean: found 2 numbers"));
}

TEST(ProgramShapesTest, RefusesInputsThatAreNoActivations) {
  for (const Dims& dims :
       {Dims{}, Dims{3}, Dims{0, 3}, Dims{1, -1}, Dims{1, 1, 1, 1, 1, 1}}) {
    EXPECT_EQ(DimsOf("relu(x)", dims).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(ProgramShapesTest, SizesBeyond63BitsAreRefused) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  for (const char* step :
       {"relu(x)", "flatten(x)", "upsample(x, scale_factor=1e18)",
        "upsample(x, size=4611686018427387904)",
        "max_pool(x, kernel_size=9223372036854775807)",
        "max_pool(x, kernel_size=9, dilation=9223372036854775807)",
        "max_pool(x, kernel_size=9, stride=9223372036854775807)",
        "adaptive_avg_pool(x, output_size=9223372036854775807)",
        "adaptive_max_pool(x, output_size=9223372036854775807)",
        "pad(x, pads=[9223372036854775807, 0])",
        "pad(x, pads=[0, 4611686018427387904, 0, 4611686018427387904])"}) {
    EXPECT_EQ(DimsOf(step, {1, 1, kLarge, kLarge}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << step;
  }
  EXPECT_EQ(DimsOf("concat(x, x)", {1, kLarge, 1 << 19}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ProgramShapesTest, CrossEntropyTakesTheLogitsWithoutTheirChannels) {
  const Program program = *ParseProgram(
      "input x\ninput t index\ny = cross_entropy(x, t)\noutput y\n");
  EXPECT_TRUE(InferShapes(program, {{2, 3, 4}, {2, 4}}).ok());
  EXPECT_THAT(InferShapes(program, {{2, 3, 4}, {2, 3}}).status().message(),
              HasSubstr("steps[0] (y).target: found [2,3], expected [2,4]"));
}

TEST(ProgramShapesTest, CrossEntropyTakesProbabilitiesLikeTheLogits) {
  const auto error_of = [](const std::string& attributes, const Dims& target) {
    const Program program =
        *ParseProgram("input x\ninput t\ny = cross_entropy(x, t" + attributes +
                      ")\noutput y\n");
    return std::string(
        InferShapes(program, {{2, 3, 4}, target}).status().message());
  };
  EXPECT_EQ(error_of("", {2, 3, 4}), "");
  EXPECT_EQ(error_of(", ignore_index=-100", {2, 3, 4}), "");
  EXPECT_EQ(error_of("", {2, 4}),
            "steps[0] (y).target: found [2,4], expected [2,3,4], the logits' "
            "dims, for probabilities");
  EXPECT_EQ(error_of(", ignore_index=0", {2, 3, 4}),
            "steps[0] (y).ignore_index: found 0, expected less than 0 for a "
            "target of probabilities");
}

TEST(ProgramShapesTest, AParameterWithoutAxesIsReadWithAShape) {
  const auto with = [](const std::string& read) {
    return "parameter g []\nr = " + read + "\n";
  };
  EXPECT_THAT(
      *DimsOf("mul(x, r)", {2, 3, 4}, with("read(g, shape=[1, 1, -1])")),
      ElementsAre(2, 3, 4));
  EXPECT_EQ(ErrorOf("mul(x, r)", {2, 3}, with("read(g)")),
            "steps[0] (r).x: found [], expected rank 2 at least, or a shape");
  EXPECT_THAT(ErrorOf("mul(x, r)", {2, 3}, with("read(g, shape=[1, 2])")),
              HasSubstr("as many elements as [] has"));
}

TEST(ProgramShapesTest, BroadcastsAxesOfOneElement) {
  const Program program =
      *ParseProgram("input a\ninput b\ny = mul(a, b)\noutput y\n");
  const Dims a = {2, 3, 4, 5};
  for (const Dims& b : {a, Dims{2, 3, 1, 1}, Dims{1, 3, 1, 1}, Dims{2, 1, 1, 1},
                        Dims{1, 1, 1, 1}, Dims{2, 3, 4, 1}, Dims{1, 3, 4, 5}}) {
    EXPECT_TRUE(InferShapes(program, {a, b}).ok());
  }
  for (const Dims& b :
       {Dims{3, 1, 1, 1}, Dims{3, 1, 1}, Dims{2, 2, 1, 1}, Dims{2, 3, 4, 6}}) {
    EXPECT_THAT(InferShapes(program, {a, b}).status().message(),
                HasSubstr("steps[0] (y).b"));
  }
}

TEST(ProgramShapesTest, AChoiceBroadcastsAllOperands) {
  const Program program = *ParseProgram(
      "input m\ninput a\ninput b\ny = where(m, a, b)\noutput y\n");
  const auto shapes =
      InferShapes(program, {{2, 1, 1, 5}, {1, 3, 1, 1}, {2, 1, 4, 1}});
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_THAT(shapes->dims.at("y"), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(
      InferShapes(program, {{2, 3}, {2, 1}, {3, 1}}).status().message(),
      HasSubstr("steps[0] (y).b: found [3,1], expected [2,3], or 1 along"));
  EXPECT_THAT(
      InferShapes(program, {{2, 3}, {2, 1, 1}, {2, 3}}).status().message(),
      HasSubstr("steps[0] (y).a"));
  constexpr int64_t kLarge = int64_t{1} << 40;
  EXPECT_EQ(
      InferShapes(program, {{kLarge, 1}, {1, kLarge}, {1, 1}}).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(ProgramWindowsTest, AdaptiveWindowsCoverTheInput) {
  EXPECT_EQ(AdaptiveWindow(7, 3, 0).begin, 0);
  EXPECT_EQ(AdaptiveWindow(7, 3, 0).end, 3);
  EXPECT_EQ(AdaptiveWindow(7, 3, 1).begin, 2);
  EXPECT_EQ(AdaptiveWindow(7, 3, 1).end, 5);
  EXPECT_EQ(AdaptiveWindow(7, 3, 2).end, 7);
}

TEST(ProgramWindowsTest, NearestCopiesWhatPyTorchCopies) {
  // torch.nn.functional.interpolate(arange(3), size=7) and scale_factor=1.5.
  const int64_t by_size[] = {0, 0, 0, 1, 1, 2, 2};
  for (int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(NearestSource({3, 7, 3.0 / 7, false}, i), by_size[i]) << i;
  }
  const int64_t by_factor[] = {0, 0, 1, 2};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(NearestSource({3, 4, 1 / 1.5, false}, i), by_factor[i]) << i;
  }
}

TEST(ProgramWindowsTest, LinearSourcesStayInsideTheInput) {
  const LinearSource first = LinearSourceOf({3, 6, 0.5, false}, 0);
  EXPECT_EQ(first.low, 0);
  EXPECT_EQ(first.weight, 0);
  const LinearSource last = LinearSourceOf({3, 6, 0.5, false}, 5);
  EXPECT_EQ(last.low, 2);
  EXPECT_EQ(last.high, 2);
  const LinearSource corner = LinearSourceOf({3, 5, 0.5, true}, 4);
  EXPECT_EQ(corner.low, 2);
  EXPECT_EQ(corner.weight, 0);
}

}  // namespace
}  // namespace convgrad

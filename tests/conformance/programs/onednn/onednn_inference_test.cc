// Tests inference on the CPU backend, which fuses convolutions with the steps
// that follow. The results are compared with the reference. Where the library's
// post-ops would be wrong, they are compared bit for bit with the forward that
// fuses less.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/onednn/library/onednn_cpu.h"
#include "backends/onednn/networks/network_plan.h"
#include "backends/onednn/onednn_backend.h"
#include "backends/reference/reference_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Has each kind of group that a convolution can be fused with, channels that
// fill blocks and some that don't, and a depthwise convolution.
constexpr char kNetwork[] = R"(input x
parameter w1 [16, 20, 3, 3]
parameter b1 [16]
parameter w2 [16, 16, 1, 1]
parameter b2 [16]
parameter g [16]
parameter b [16]
parameter m [16] fixed
parameter var [16] fixed
parameter w3 [16, 1, 3, 3]
parameter w4 [16, 16, 1, 1]
parameter w5 [24, 16, 3, 3]
a = conv(x, w1, b1, padding=1)
r = relu(a)
c = conv(r, w2, b2)
n = batch_norm(c, g, b, m, var)
s = add(n, r)
t = relu(s)
d = conv(t, w3, padding=1, groups=16)
e = batch_norm(d, g, none, m, var)
f = relu6(e)
h = conv(f, w4)
i = batch_norm(h, none, b, m, var)
j = add(i, t)
k = conv(j, w5, stride=2)
y = relu6(k)
output y
)";

// A first convolution whose channels are too few for blocks.
constexpr char kImage[] = R"(input x
parameter w [16, 3, 3, 3]
parameter m [16] fixed
parameter var [16] fixed
a = conv(x, w, padding=1)
n = batch_norm(a, none, none, m, var)
y = relu(n)
output y
)";

// One convolution and the steps that follow it.
constexpr char kRelu[] = R"(input x
parameter w [16, 16, 1, 1]
a = conv(x, w)
y = relu(a)
output y
)";
constexpr char kCompared[] =
    "input x\nparameter w [16, 16, 1, 1]\na = conv(x, w)\nr = relu(a)\n"
    "y = lt(r, other=0.5)\noutput y\n";
constexpr char kRelu6[] = R"(input x
parameter w [16, 16, 1, 1]
a = conv(x, w)
y = relu6(a)
output y
)";
constexpr char kCapped[] = R"(input x
parameter w [16, 16, 1, 1]
a = relu6(x)
b = conv(a, w)
y = relu6(b)
output y
)";
// An overflow makes Inf of both signs, which the next convolution adds.
constexpr char kTwice[] = R"(input x
parameter w [16, 16, 1, 1]
parameter w2 [16, 16, 1, 1]
a = conv(x, w)
b = conv(a, w2)
y = relu6(b)
output y
)";
constexpr char kNorm[] = R"(input x
parameter w [16, 16, 1, 1]
parameter m [16] fixed
parameter var [16] fixed
a = conv(x, w)
y = batch_norm(a, none, none, m, var, eps=1e-30)
output y
)";

ProgramRequest RequestOf(int64_t channels, ProgramPart part,
                         DataType dtype = DataType::kF32) {
  ProgramRequest request;
  request.part = part;
  request.compute_dtype = dtype;
  TensorDescriptor images;
  images.dims = {2, channels, 7, 7};
  request.inputs = {images};
  return request;
}

using Operands = std::vector<std::vector<std::byte>>;

void Set(std::vector<std::byte>* floats, size_t index, float value) {
  std::memcpy(floats->data() + index * sizeof(float), &value, sizeof(float));
}

// The dtype and the options of the computation.
struct Computation {
  DataType dtype;
  bool native_bf16 = false;
  bool channels_last = false;

  // As the backend chooses, which needs bf16 for channels last.
  int64_t block() const {
    return channels_last && onednn::ChannelsPerBlock() == 16
               ? onednn::kChannelsLast
               : onednn::ChannelsPerBlock();
  }
};

class OnednnInference : public testing::TestWithParam<Computation> {
 protected:
  static ProgramOperation OperationOf(const std::string& text, int64_t channels,
                                      ProgramPart part) {
    return *MakeProgramOperation(text,
                                 RequestOf(channels, part, GetParam().dtype));
  }

  std::vector<float> Infer(const std::string& text, int64_t channels,
                           const Operands& operands) const {
    return convgrad::RunProgram(
               *onednn_, OperationOf(text, channels, ProgramPart::kForward),
               operands)
        .Floats(0);
  }

  // Returns the results of the forward with a tape.
  std::vector<float> ForwardWithTape(const std::string& text, int64_t channels,
                                     const Operands& operands) const {
    const auto plan = onednn_->MakePlan(
        OperationOf(text, channels, ProgramPart::kForwardTape), {.threads = 2});
    EXPECT_TRUE(plan.ok()) << plan.status();
    ProgramRequest request =
        RequestOf(channels, ProgramPart::kForwardTape, GetParam().dtype);
    request.tape_bytes = (*plan)->tape_bytes();
    const auto forward = MakeProgramOperation(text, request);
    return convgrad::RunProgram(*onednn_, *forward, operands).Floats(0);
  }

  static Operands OperandsOf(const std::string& text, int64_t channels) {
    return RandomOperands(
        *MakeProgramOperation(text, RequestOf(channels, ProgramPart::kForward)),
        1);
  }

  void ExpectDoneAgain(const std::string& text, const Operands& operands) {
    const std::vector<float> got = Infer(text, 16, operands);
    const std::vector<float> expected = ForwardWithTape(text, 16, operands);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(
        std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)),
        0);
  }

  const std::unique_ptr<Backend> onednn_ =
      *MakeOnednnBackend(GetParam().native_bf16, GetParam().channels_last);
  const std::unique_ptr<Backend> reference_ = *MakeReferenceBackend();
};

TEST_P(OnednnInference, IsAsNearToTheReferenceAsWithoutFusing) {
  const Operands operands = OperandsOf(kNetwork, 20);
  const std::vector<float> got = Infer(kNetwork, 20, operands);
  const auto exact =
      MakeProgramOperation(kNetwork, RequestOf(20, ProgramPart::kForward));
  const std::vector<float> expected =
      convgrad::RunProgram(*reference_, *exact, operands).Floats(0);
  ASSERT_EQ(got.size(), expected.size());
  const double without =
      ErrorOf(ForwardWithTape(kNetwork, 20, operands), expected);
  EXPECT_GT(without, 0);
  EXPECT_LE(ErrorOf(got, expected), 4 * without);
}

TEST_P(OnednnInference, HasNoPassOverMemoryBehindAConvolution) {
  for (const auto& [text, channels, convolutions] :
       {std::tuple{kNetwork, 20, 5}, std::tuple{kImage, 3, 1}}) {
    const ProgramOperation operation =
        OperationOf(text, channels, ProgramPart::kForward);
    const onednn::NetworkOptions options = {1, GetParam().block(),
                                            GetParam().native_bf16, 1e9};
    const auto plan = onednn::MakeNetworkPlan(operation, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    int found = 0;
    for (const onednn::Step& step : (*plan)->steps()) {
      if (step.only_if != onednn::kNoBuffer) continue;
      EXPECT_FALSE(absl::StrContains(step.kind, "activation")) << step.kind;
      // The kind belongs to a batch_norm that isn't folded.
      EXPECT_NE(step.kind, "batch_norm statistics");
      found += step.kind == "conv forward" ? 1 : 0;
    }
    EXPECT_EQ(found, convolutions);
  }
}

TEST_P(OnednnInference, AReluOfMinusInfinityIsZero) {
  for (const char* text : {kRelu, kCompared}) {
    Operands operands = OperandsOf(text, 16);
    Set(&operands[1], 0, 1);
    Set(&operands[0], 3, -kInf);
    ExpectDoneAgain(text, operands);
    EXPECT_EQ(Infer(text, 16, operands)[3], text == kCompared ? 1 : 0);
  }
}

TEST_P(OnednnInference, ARelu6LetsNanThrough) {
  for (const char* text : {kRelu6, kCapped}) {
    Operands operands = OperandsOf(text, 16);
    Set(&operands[0], 3, kNan);
    ExpectDoneAgain(text, operands);
    EXPECT_TRUE(std::isnan(Infer(text, 16, operands)[3]));
  }
}

TEST_P(OnednnInference, ARelu6LetsNanOfAnOverflowThrough) {
  Operands operands = OperandsOf(kTwice, 16);
  for (size_t channel = 0; channel < 16; ++channel) {
    Set(&operands[0], channel * 49, 3e38F);
    Set(&operands[1], channel, 3e38F);
    Set(&operands[1], 16 + channel, -3e38F);
    Set(&operands[2], channel, 1);
  }
  ExpectDoneAgain(kTwice, operands);
  EXPECT_TRUE(std::isnan(Infer(kTwice, 16, operands)[0]));
}

TEST_P(OnednnInference, ARelu6LetsNanOfALargeImageThrough) {
  ProgramRequest request =
      RequestOf(16, ProgramPart::kForward, GetParam().dtype);
  request.inputs[0].dtype = DataType::kU16;
  Operands operands = OperandsOf(kTwice, 16);
  operands[0].assign(2 * 16 * 49 * sizeof(uint16_t), std::byte{0xff});
  for (const size_t weight : {1, 2}) {
    std::fill(operands[weight].begin(), operands[weight].end(), std::byte{});
  }
  Set(&operands[1], 0, 3e34F);
  Set(&operands[1], 16, -3e34F);
  Set(&operands[2], 0, 1);
  Set(&operands[2], 1, 1);
  const auto operation = MakeProgramOperation(kTwice, request);
  EXPECT_TRUE(std::isnan(
      convgrad::RunProgram(*onednn_, *operation, operands).Floats(0)[0]));
}

TEST_P(OnednnInference, RoundsUnsignedIntegersOnce) {
  const DataType dtype = GetParam().dtype;
  ProgramRequest request = RequestOf(2, ProgramPart::kForward, dtype);
  request.inputs[0].dims = {2, 2, 128, 128};
  request.inputs[0].dtype = DataType::kU16;
  const auto operation =
      MakeProgramOperation("input x\ny = relu(x)\noutput y\n", request);
  Operands operands = {std::vector<std::byte>(2 * 65536)};
  std::vector<float> expected;
  for (int i = 0; i < 65536; ++i) {
    StoreRounded(DataType::kU16, i, &operands[0][2 * i]);
    uint32_t rounded;
    StoreRounded(dtype, i, &rounded);
    expected.push_back(static_cast<float>(LoadAsDouble(dtype, &rounded)));
  }
  for (const Backend* backend : {onednn_.get(), reference_.get()}) {
    EXPECT_EQ(convgrad::RunProgram(*backend, *operation, operands).Floats(0),
              expected);
  }
}

TEST_P(OnednnInference, AScaleThatWeightsCannotTakeIsNotFolded) {
  Operands operands = OperandsOf(kNorm, 16);
  for (size_t channel = 0; channel < 16; ++channel) {
    Set(&operands[2], channel, 0);
    Set(&operands[3], channel, channel == 5 ? 1e-30F : 1.0F);
    Set(&operands[1], 5 * 16 + channel, 1e30F);
  }
  for (size_t i = 0; i < operands[0].size() / sizeof(float); ++i) {
    Set(&operands[0], i, 1e-35F);
  }
  ExpectDoneAgain(kNorm, operands);
}

// The weights cancel: if they were scaled and then rounded to bf16, little of
// the difference would be left.
TEST_P(OnednnInference, WeightsAreNotRoundedAgainByTheScale) {
  Operands operands = OperandsOf(kNorm, 16);
  std::fill(operands[1].begin(), operands[1].end(), std::byte{});
  for (size_t channel = 0; channel < 16; ++channel) {
    Set(&operands[1], channel * 16, 1);
    Set(&operands[1], channel * 16 + 1, -1 + 0x1p-7F);
    Set(&operands[2], channel, 0);
    Set(&operands[3], channel, static_cast<float>(channel) + 3);
  }
  for (size_t i = 0; i < operands[0].size() / sizeof(float); ++i) {
    Set(&operands[0], i, 1);
  }
  const std::vector<float> got = Infer(kNorm, 16, operands);
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t channel = i / 49 % 16;
    const double expected =
        0x1p-7 / std::sqrt(static_cast<double>(channel) + 3);
    // The tolerance is half a unit in the last place of bf16.
    EXPECT_NEAR(got[i], expected, expected * 0x1p-8) << i;
  }
}

// Runs a plan with memory for its prepared weights. Scratch starts as NaN.
std::vector<float> RunWith(const Plan& plan, const Operands& operands,
                           GuardedBytes* prepared, bool is_prepared,
                           size_t results) {
  GuardedBytes scratch(plan.scratch_bytes());
  std::memset(scratch.data(), 0xff, scratch.size());
  GuardedBytes result(static_cast<int64_t>(results * sizeof(float)));
  RunBuffers buffers;
  for (const auto& operand : operands) {
    buffers.operands.push_back(operand.data());
  }
  buffers.results = {result.data()};
  buffers.scratch = {scratch.data(), static_cast<size_t>(scratch.size())};
  buffers.prepared_weight = {prepared->data(),
                             static_cast<size_t>(prepared->size())};
  buffers.weight_is_prepared = is_prepared;
  EXPECT_TRUE(plan.Run(buffers).ok());
  EXPECT_TRUE(scratch.is_intact() && result.is_intact() &&
              prepared->is_intact());
  std::vector<float> values(results);
  std::memcpy(values.data(), result.data(), results * sizeof(float));
  return values;
}

TEST_P(OnednnInference, FindsDoneWhatDependsOnParametersAlone) {
  const auto plan = onednn_->MakePlan(
      OperationOf(kNetwork, 20, ProgramPart::kForward), {.threads = 2});
  ASSERT_TRUE(plan.ok()) << plan.status();
  GuardedBytes prepared((*plan)->prepared_weight_bytes());
  std::memset(prepared.data(), 0xff, prepared.size());
  Operands operands = OperandsOf(kNetwork, 20);
  const std::vector<float> first = Infer(kNetwork, 20, operands);
  EXPECT_EQ(RunWith(**plan, operands, &prepared, false, first.size()), first);
  // The second run has other images and the same parameters.
  for (size_t i = 0; i < operands[0].size() / sizeof(float); ++i) {
    Set(&operands[0], i, static_cast<float>(i % 7) - 3);
  }
  const std::vector<float> second = Infer(kNetwork, 20, operands);
  EXPECT_NE(second, first);
  EXPECT_EQ(RunWith(**plan, operands, &prepared, true, first.size()), second);
  // The plan doesn't read the weights again.
  for (const size_t weight : {1, 3, 9, 10, 11}) {
    std::fill(operands[weight].begin(), operands[weight].end(), std::byte{});
  }
  EXPECT_EQ(RunWith(**plan, operands, &prepared, true, first.size()), second);
}

INSTANTIATE_TEST_SUITE_P(, OnednnInference,
                         testing::Values(Computation{DataType::kF32, false},
                                         Computation{DataType::kBF16, false},
                                         Computation{DataType::kBF16, true},
                                         Computation{DataType::kBF16, true,
                                                     true}),
                         [](const auto& info) {
                           return absl::StrCat(
                               NameOf(info.param.dtype),
                               info.param.native_bf16 ? "_native" : "",
                               info.param.channels_last ? "_last" : "");
                         });

}  // namespace
}  // namespace convgrad

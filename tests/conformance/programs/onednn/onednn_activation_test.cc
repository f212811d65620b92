// Tests activations that the CPU backend fuses with the convolution before them
// at inference: their accuracy for numbers of any size, and that Inf and NaN
// have the reference's results.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/onednn/library/onednn_cpu.h"
#include "backends/onednn/networks/network_plan.h"
#include "backends/onednn/onednn_backend.h"
#include "backends/reference/reference_backend.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kChannels = 32, kExtent = 12;

// Has dense, depthwise and strided convolutions, and two of 3x3 that Winograd's
// algorithm may compute.
constexpr char kNetwork[] = R"(input x
parameter w1 [32, 32, 3, 3]
parameter b1 [32]
parameter w2 [32, 32, 1, 1]
parameter g [32]
parameter b [32]
parameter m [32] fixed
parameter var [32] fixed
parameter w3 [32, 1, 3, 3]
parameter w4 [36, 32, 3, 3]
a = conv(x, w1, b1, padding=1)
r = silu(a)
c = conv(r, w2)
n = batch_norm(c, g, b, m, var)
s = add(n, r)
t = leaky_relu(s, negative_slope=0.125)
d = conv(t, w3, padding=1, groups=32)
e = batch_norm(d, g, none, m, var)
f = hardswish(e)
h = conv(f, w1, padding=1)
i = batch_norm(h, g, b, m, var)
j = hardswish(i)
k = conv(j, w4, stride=2)
y = silu(k)
output y
)";

constexpr const char* kActivations[] = {
    "silu(a)", "hardswish(a)", "leaky_relu(a, negative_slope=0.125)",
    "leaky_relu(a, negative_slope=0)", "leaky_relu(a, negative_slope=-2)"};

// Returns a program of one convolution and an activation.
std::string Activated(const std::string& activation, int kernel = 1) {
  return absl::StrCat("input x\nparameter w [32, 32, ", kernel, ", ", kernel,
                      "]\na = conv(x, w, padding=", kernel / 2,
                      ")\ny = ", activation, "\noutput y\n");
}

using Operands = std::vector<std::vector<std::byte>>;

void Set(std::vector<std::byte>* floats, size_t index, float value) {
  std::memcpy(floats->data() + index * sizeof(float), &value, sizeof(float));
}

bool IsSame(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// The dtype and the options of the computation.
struct Computation {
  DataType dtype;
  bool native_bf16 = false;
  bool fast = false;
  bool channels_last = false;

  // As the backend chooses, which needs bf16 for channels last.
  int64_t block() const {
    return channels_last && onednn::ChannelsPerBlock() == 16
               ? onednn::kChannelsLast
               : onednn::ChannelsPerBlock();
  }
};

class OnednnActivation : public testing::TestWithParam<Computation> {
 protected:
  static std::shared_ptr<const ProgramOperation> OperationOf(
      const std::string& text, DataType dtype, bool fuse = true) {
    ProgramRequest request;
    request.part = ProgramPart::kForward;
    request.compute_dtype = dtype;
    request.fuse = fuse;
    request.fast = GetParam().fast;
    TensorDescriptor images;
    images.dims = {2, kChannels, kExtent, kExtent};
    request.inputs = {images};
    return MakeProgramOperation(text, std::move(request));
  }

  std::vector<float> Infer(const std::string& text, const Operands& operands,
                           bool fuse = true, int threads = 2) const {
    const auto operation = OperationOf(text, GetParam().dtype, fuse);
    const auto plan = onednn_->MakePlan(*operation, {.threads = threads});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return RunPlan(**plan, *operation, operands, false).Floats(0);
  }
  std::vector<float> Exact(const std::string& text,
                           const Operands& operands) const {
    return RunProgram(*reference_, *OperationOf(text, DataType::kF32), operands)
        .Floats(0);
  }
  static Operands OperandsOf(const std::string& text) {
    return RandomOperands(*OperationOf(text, DataType::kF32), 1);
  }

  const std::unique_ptr<Backend> onednn_ =
      *MakeOnednnBackend(GetParam().native_bf16, GetParam().channels_last);
  const std::unique_ptr<Backend> reference_ = *MakeReferenceBackend();
};

TEST_P(OnednnActivation, IsAsNearToTheReferenceAsWithoutFusing) {
  const Operands operands = OperandsOf(kNetwork);
  const std::vector<float> expected = Exact(kNetwork, operands);
  const std::vector<float> got = Infer(kNetwork, operands);
  const double without = ErrorOf(Infer(kNetwork, operands, false), expected);
  EXPECT_GT(without, 0);
  EXPECT_LE(ErrorOf(got, expected), 4 * without);
  for (const int threads : {1, 3}) {
    EXPECT_EQ(Infer(kNetwork, operands, true, threads), got);
  }
}

TEST_P(OnednnActivation, TakesNoPassOverMemory) {
  const auto operation = OperationOf(kNetwork, GetParam().dtype);
  const onednn::NetworkOptions options = {1, GetParam().block(),
                                          GetParam().native_bf16, 1e9};
  const auto plan = onednn::MakeNetworkPlan(*operation, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  int passes = 0;
  for (const onednn::Step& step : (*plan)->steps()) {
    if (step.only_if != onednn::kNoBuffer) continue;
    passes += absl::StrContains(step.kind, "activation") ? 1 : 0;
  }
  // For SSE4.1 the library has only plain loops for the 36 channels of `k`.
  EXPECT_EQ(passes, onednn::InstructionSet() == "sse41" ? 1 : 0);
}

TEST_P(OnednnActivation, TreatsWhatIsNotFiniteAsTheReference) {
  for (const char* const activation : kActivations) {
    for (const float value : {kNan, kInf, -kInf}) {
      SCOPED_TRACE(absl::StrCat(activation, " of ", value));
      const std::string text = Activated(activation);
      Operands operands = OperandsOf(text);
      Set(&operands[1], 0, 1);
      Set(&operands[0], 3, value);
      const float got = Infer(text, operands)[3];
      EXPECT_TRUE(IsSame(got, Exact(text, operands)[3])) << got;
    }
  }
}

// A relu after the activation would hide a wrong -Inf.
TEST_P(OnednnActivation, LaterStepsDontHideWhatIsNotFinite) {
  for (const char* const activation : kActivations) {
    for (const float value : {kNan, kInf, -kInf}) {
      SCOPED_TRACE(absl::StrCat(activation, " of ", value));
      std::string text = Activated(activation);
      text.replace(text.find("output y"), 8,
                   "z = max_pool(y, kernel_size=1)\nu = relu(z)\noutput u");
      Operands operands = OperandsOf(text);
      Set(&operands[1], 0, 1);
      Set(&operands[0], 3, value);
      const float got = Infer(text, operands)[3];
      EXPECT_TRUE(IsSame(got, Exact(text, operands)[3])) << got;
    }
  }
}

// The results are finite, so they are those of the fused step. Winograd's
// algorithm leaves numbers from 2^24 on to the unfused step.
TEST_P(OnednnActivation, IsRightForNumbersOfAnySize) {
  const float most = GetParam().fast ? 1e7F : 1e38F;
  const float numbers[] = {0,  -0.0F, 1e-40F, -1e-40F, 1e-20F, -1e-20F, -3,
                           3,  -2.5F, -20,    -87,     -87.5F, -88,     -104,
                           90, 1e6F,  -1e6F,  most,    -most};
  for (const char* const activation : kActivations) {
    for (const int kernel : {1, 3}) {
      const std::string text = Activated(activation, kernel);
      Operands operands = OperandsOf(text);
      for (auto& operand : operands) {
        std::fill(operand.begin(), operand.end(), std::byte{});
      }
      for (size_t channel = 0; channel < kChannels; ++channel) {
        const size_t weight = channel * (kChannels + 1) * kernel * kernel;
        Set(&operands[1], weight + kernel * kernel / 2, 1);
      }
      for (size_t i = 0; i < std::size(numbers); ++i) {
        Set(&operands[0], i * kExtent * kExtent + 4 * kExtent + 4, numbers[i]);
      }
      const std::vector<float> expected = Exact(text, operands);
      const std::vector<float> got = Infer(text, operands);
      constexpr size_t kImage = kExtent * kExtent;
      for (size_t i = 0; i < got.size(); ++i) {
        const size_t channel = i / kImage;
        const float number =
            channel < std::size(numbers) ? numbers[channel] : 0;
        ASSERT_NEAR(got[i], expected[i],
                    6 * UnitRoundoff(GetParam().dtype) * std::abs(number) +
                        std::numeric_limits<float>::min())
            << activation << " of " << number;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , OnednnActivation,
    testing::Values(Computation{DataType::kF32},
                    Computation{DataType::kF32, false, true},
                    Computation{DataType::kBF16},
                    Computation{DataType::kBF16, true},
                    Computation{DataType::kBF16, true, false, true}),
    [](const auto& info) {
      return absl::StrCat(NameOf(info.param.dtype),
                          info.param.native_bf16 ? "_native" : "",
                          info.param.fast ? "_fast" : "",
                          info.param.channels_last ? "_last" : "");
    });

}  // namespace
}  // namespace convgrad

// Tests convolutions of bf16 networks on integers, whose sums are exact in f32:
// results are these sums, rounded once. What isn't finite reaches only the sums
// that contain it.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/data_type.h"
#include "backends/onednn/library/onednn_cpu.h"
#include "backends/onednn/networks/network_plan.h"
#include "backends/onednn/onednn_backend.h"
#include "backends/reference/reference_backend.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

using Operands = std::vector<std::vector<std::byte>>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<std::byte> BytesOf(const std::vector<float>& floats) {
  std::vector<std::byte> bytes(floats.size() * sizeof(float));
  std::memcpy(bytes.data(), floats.data(), bytes.size());
  return bytes;
}

uint16_t Rounded(float value) {
  uint16_t bf16;
  StoreRounded(DataType::kBF16, value, &bf16);
  return bf16;
}

// A program of one convolution of `x`, whose result is `y`.
struct Case {
  std::string program;
  Dims x;
};

// Images whose channels are padded, with and without a bias, borders, odd sizes
// and a fused relu; and transposed convolutions, whose bias is added behind the
// library.
const Case kCases[] = {
    {"input x\nparameter w [32, 3, 7, 7]\n"
     "y = conv(x, w, stride=2, padding=3)\noutput y\n",
     {2, 3, 17, 23}},
    {"input x\nparameter w [16, 3, 3, 3]\nparameter b [16]\n"
     "y = conv(x, w, b, padding=1)\noutput y\n",
     {3, 3, 9, 8}},
    {"input x\nparameter w [20, 3, 4, 4]\nparameter b [20]\n"
     "y = conv(x, w, b, stride=4)\noutput y\n",
     {1, 3, 16, 20}},
    {"input x\nparameter w [32, 3, 7, 7]\nparameter b [32]\n"
     "a = conv(x, w, b, stride=2, padding=3)\ny = relu(a)\noutput y\n",
     {2, 3, 13, 30}},
    {"input x\nparameter w [32, 16, 2, 2]\nparameter b [16]\n"
     "y = conv_transpose(x, w, b, stride=2)\noutput y\n",
     {2, 32, 7, 5}},
    {"input x\nparameter w [20, 18, 3, 3]\nparameter b [18]\n"
     "y = conv_transpose(x, w, b, stride=2, padding=1, output_padding=1)\n"
     "output y\n",
     {2, 20, 6, 9}},
    {"input x\nparameter w [16, 32, 4, 4]\n"
     "y = conv_transpose(x, w, stride=2, padding=1)\noutput y\n",
     {1, 16, 8, 8}},
};

// The caller's images: their dtype, or f32 in channels last.
enum class Images { kF32, kBF16, kU8, kU16, kLast };

DataType DtypeOf(Images images) {
  switch (images) {
    case Images::kBF16:
      return DataType::kBF16;
    case Images::kU8:
      return DataType::kU8;
    case Images::kU16:
      return DataType::kU16;
    default:
      return DataType::kF32;
  }
}

class OnednnBf16 : public testing::Test {
 protected:
  static std::shared_ptr<const ProgramOperation> OperationOf(const Case& one,
                                                             DataType dtype,
                                                             Images images,
                                                             ProgramPart part) {
    ProgramRequest request;
    request.part = part;
    request.compute_dtype = dtype;
    TensorDescriptor x;
    x.dims = one.x;
    x.dtype = DtypeOf(images);
    if (images == Images::kLast) x.layout = Layout::kNXC;
    request.inputs = {x};
    return MakeProgramOperation(one.program, std::move(request));
  }

  // Returns integers that bf16 has, in the order of the operands. The bias has
  // integers that bf16 hasn't.
  static std::vector<std::vector<float>> IntegersFor(
      const ProgramOperation& operation) {
    std::mt19937 random(1);
    std::vector<std::vector<float>> operands;
    for (const auto& bytes : RandomOperands(operation, 1)) {
      const bool is_bias = operands.size() == 2;
      std::uniform_int_distribution<int> number(is_bias ? -4000 : -12,
                                                is_bias ? 4000 : 12);
      std::vector<float> floats(bytes.size() / sizeof(float));
      for (float& value : floats) value = static_cast<float>(number(random));
      operands.push_back(std::move(floats));
    }
    return operands;
  }

  // Returns the results of the reference in f32, each rounded to bf16.
  std::vector<float> Expected(const Case& one,
                              const std::vector<std::vector<float>>& floats) {
    Operands operands;
    for (const auto& operand : floats) operands.push_back(BytesOf(operand));
    std::vector<float> values =
        RunProgram(*reference_,
                   *OperationOf(one, DataType::kF32, Images::kF32, kForward),
                   operands)
            .Floats(0);
    for (float& value : values) {
      const uint16_t bf16 = Rounded(value);
      value = static_cast<float>(LoadAsDouble(DataType::kBF16, &bf16));
    }
    return values;
  }

  // Returns the results in bf16 from images of another dtype or layout.
  std::vector<float> Got(const Backend& backend, const Case& one, Images images,
                         ProgramPart part,
                         std::vector<std::vector<float>> floats) {
    const auto operation = OperationOf(one, DataType::kBF16, images, part);
    if (images == Images::kLast) floats[0] = WithChannelsLast(one.x, floats[0]);
    Operands operands;
    for (const auto& operand : floats) operands.push_back(BytesOf(operand));
    const DataType dtype = DtypeOf(images);
    operands[0].resize(floats[0].size() * ByteSizeOf(dtype));
    std::byte* to = operands[0].data();
    for (const float value : floats[0]) {
      StoreRounded(dtype, value, to);
      to += ByteSizeOf(dtype);
    }
    return RunProgram(backend, *operation, operands).Floats(0);
  }

  static std::vector<float> WithChannelsLast(const Dims& dims,
                                             const std::vector<float>& images) {
    std::vector<float> last(images.size());
    const int64_t spatial = dims[2] * dims[3];
    for (int64_t i = 0; i < std::ssize(images); ++i) {
      const int64_t n = i / (dims[1] * spatial), c = i / spatial % dims[1];
      last[(n * spatial + i % spatial) * dims[1] + c] = images[i];
    }
    return last;
  }

  static constexpr ProgramPart kForward = ProgramPart::kForward;
  const std::unique_ptr<Backend> reference_ = *MakeReferenceBackend();
  const std::unique_ptr<Backend> blocks_ = *MakeOnednnBackend(true);
  const std::unique_ptr<Backend> last_ = *MakeOnednnBackend(true, true);
};

TEST_F(OnednnBf16, SumsAreRoundedOnce) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.program);
    auto floats =
        IntegersFor(*OperationOf(one, DataType::kF32, Images::kF32, kForward));
    for (float& value : floats[0]) value = std::abs(value);  // for kU8 and kU16
    const std::vector<float> expected = Expected(one, floats);
    for (const Images images : {Images::kF32, Images::kBF16, Images::kU8,
                                Images::kU16, Images::kLast}) {
      for (const Backend* backend : {blocks_.get(), last_.get()}) {
        EXPECT_EQ(Got(*backend, one, images, kForward, floats), expected);
      }
    }
  }
}

bool IsSame(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

TEST_F(OnednnBf16, WhatIsNotFiniteReachesItsOwnSums) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.program);
    auto floats =
        IntegersFor(*OperationOf(one, DataType::kF32, Images::kF32, kForward));
    // In the last channel, whose neighbour in memory is the next image.
    floats[0][one.x[1] * one.x[2] * one.x[3] - 1] = kInf;
    floats[0][0] = NAN;
    const std::vector<float> expected = Expected(one, floats);
    for (const Backend* backend : {blocks_.get(), last_.get()}) {
      const std::vector<float> got =
          Got(*backend, one, Images::kF32, kForward, floats);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(IsSame(got[i], expected[i]))
            << "at " << i << ": " << got[i] << ", expected " << expected[i];
      }
    }
  }
}

TEST_F(OnednnBf16, IsNativeWhereTheLibraryHasKernels) {
  if (onednn::ChannelsPerBlock() < 16) GTEST_SKIP() << "no bf16 below AVX-512";
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.program);
    const auto operation =
        OperationOf(one, DataType::kBF16, Images::kF32, kForward);
    const auto plan = onednn::MakeNetworkPlan(*operation, {1, 16, true, 1e9});
    ASSERT_TRUE(plan.ok()) << plan.status();
    int found = 0;
    for (const onednn::Step& step : (*plan)->steps()) {
      // The unfused steps run only if the fused step can't.
      const bool is_other = step.only_if != onednn::kNoBuffer;
      if (is_other || step.kind != "conv forward" || !step.primitive_desc) {
        continue;
      }
      EXPECT_TRUE(
          absl::StrContains(step.primitive_desc.impl_info_str(), "bf16"))
          << step.primitive_desc.impl_info_str();
      ++found;
    }
    EXPECT_EQ(found, 1);
  }
}

}  // namespace
}  // namespace convgrad

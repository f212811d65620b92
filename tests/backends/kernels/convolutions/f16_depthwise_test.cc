// Compares depthwise f16 kernels with plain loops, with every instruction set.
#include "backends/kernels/convolutions/f16_depthwise.h"

#include <cmath>
#include <limits>
#include <vector>

#include "backends/kernels/copies/element_convert.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

// Returns small integers. Every sum is exact in f32 and, below 2048, in f16.
std::vector<float> Integers(int64_t count, int modulus) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = (i * 7 + i / modulus) % modulus - modulus / 2;
    values[i] = static_cast<float>(value);
  }
  return values;
}

std::vector<uint16_t> ToHalf(const std::vector<float>& values) {
  std::vector<uint16_t> half(values.size());
  ConvertRun(DataType::kF32, values.data(), DataType::kF16, half.data(),
             std::ssize(values));
  return half;
}

// A 2-D problem with its operands and, by plain loops, its results.
struct Example {
  explicit Example(const char* text) : problem(*Parse(text)) {
    const auto axis = [&](size_t i) {
      return problem.axes.size() == 2 ? problem.axes[i]
             : i == 1                 ? problem.axes[0]
                                      : SpatialAxis();
    };
    y = axis(0);
    x = axis(1);
    channels = problem.groups;
    data = Integers(problem.batch * y.in * x.in * channels, 5);
    weight = Integers(y.kernel * x.kernel * channels, 7);
    bias = Integers(channels, 9);
    grad = Integers(problem.batch * y.out * x.out * channels, 3);
    grad_data.resize(data.size());
    sums.resize(weight.size() + channels);
    for (int64_t i = 0; i < problem.batch * y.out * x.out; ++i) {
      out.insert(out.end(), bias.begin(), bias.end());
    }
    ForEachProduct([&](int64_t d, int64_t w, int64_t o) {
      out[o] += data[d] * weight[w];
      grad_data[d] += grad[o] * weight[w];
      sums[w] += data[d] * grad[o];
    });
    for (size_t i = 0; i < grad.size(); ++i) {
      sums[weight.size() + i % channels] += grad[i];
    }
  }

  template <typename Body>
  void ForEachProduct(const Body& body) const {
    for (int64_t n = 0; n < problem.batch; ++n) {
      for (int64_t oy = 0; oy < y.out; ++oy) {
        for (int64_t ox = 0; ox < x.out; ++ox) {
          for (int64_t ky = 0; ky < y.kernel; ++ky) {
            for (int64_t kx = 0; kx < x.kernel; ++kx) {
              const int64_t iy = oy * y.stride + ky * y.dilation - y.pad_begin;
              const int64_t ix = ox * x.stride + kx * x.dilation - x.pad_begin;
              if (iy < 0 || iy >= y.in || ix < 0 || ix >= x.in) continue;
              for (int64_t c = 0; c < channels; ++c) {
                body(((n * y.in + iy) * x.in + ix) * channels + c,
                     (ky * x.kernel + kx) * channels + c,
                     ((n * y.out + oy) * x.out + ox) * channels + c);
              }
            }
          }
        }
      }
    }
  }

  ConvProblem problem;
  SpatialAxis y, x;
  int64_t channels;
  std::vector<float> data, weight, bias, grad;
  std::vector<float> out, grad_data;
  std::vector<double> sums;
};

// Converts from the order N, spatial, C.
template <typename Element>
std::vector<Element> InLayout(Layout layout, const std::vector<Element>& from,
                              int64_t channels, int64_t batch) {
  if (layout == Layout::kNXC) return from;
  const int64_t elements = std::ssize(from) / channels / batch;
  std::vector<Element> to(from.size());
  for (int64_t i = 0; i < std::ssize(from); ++i) {
    const int64_t c = i % channels, at = i / channels;
    to[(at / elements * channels + c) * elements + at % elements] = from[i];
  }
  return to;
}

void Check(const Example& example, Layout in, Layout out) {
  const auto made = F16Depthwise::Make(example.problem);
  ASSERT_TRUE(made);
  const auto place = [&](Layout layout, const auto& values) {
    return InLayout(layout, values, example.channels, example.problem.batch);
  };
  const auto data = place(in, ToHalf(example.data));
  const auto grad = place(out, ToHalf(example.grad));
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> dirt(made->scratch_bytes() / sizeof(float), kNan);
  std::vector<float> scratch = dirt;
  std::vector<uint16_t> y(example.out.size()), grad_data(data.size());
  std::vector<float> wide(example.data.size());
  std::vector<double> sums(made->sum_count()), same(sums.size());
  F16Depthwise::ForwardTensors forward = {
      .data = {data.data(), in},
      .weight = example.weight.data(),
      .bias = example.bias.data(),
      .out = {y.data(), out, DataType::kF16}};
  made->Forward(forward, scratch.data(), 0, made->forward_items());
  F16Depthwise::BackwardTensors backward = {
      .grad = {grad.data(), out},
      .weight = example.weight.data(),
      .grad_data = {grad_data.data(), in, DataType::kF16},
      .data = {data.data(), in},
      .sums = sums.data()};
  // Runs item by item, then all items as a range for one gradient at a time.
  for (int64_t i = 0; i < made->backward_items(); ++i) {
    scratch = dirt;
    made->Backward(backward, scratch.data(), i, i + 1);
  }
  scratch = dirt;
  backward.grad_data = {};
  backward.sums = same.data();
  made->Backward(backward, scratch.data(), 0, made->backward_items());
  backward.sums = nullptr;
  backward.grad_data = {wide.data(), in, DataType::kF32};
  made->Backward(backward, scratch.data(), 0, made->backward_items());
  EXPECT_EQ(y, place(out, ToHalf(example.out)));
  EXPECT_EQ(grad_data, place(in, ToHalf(example.grad_data)));
  EXPECT_EQ(wide, place(in, example.grad_data));
  EXPECT_EQ(sums, example.sums);
  EXPECT_EQ(same, example.sums);
}

// Numbers of one sign, whose roundings may all have the same sign.
TEST(F16Depthwise, AddsLongRowsWithinTheErrorBound) {
  for (const char* text :
       {"conv1d_n1_c16_o16_g16_i9000_k3_p1", "conv2d_n600_c16_o16_g16_i1_k1",
        "conv2d_n1_c16_o16_g16_i40x60_k2_s2"}) {
    const Example example(text);
    const auto made = F16Depthwise::Make(example.problem);
    ASSERT_TRUE(made);
    const auto elements = std::ssize(example.grad) / example.channels;
    ForEachSimdTarget([&] {
      for (int i = 3; i < 20; i += 2) {
        const std::vector<float> number(1, 1.0F / static_cast<float>(i));
        const uint16_t half = ToHalf(number)[0];
        const std::vector<uint16_t> data(example.data.size(), half);
        const std::vector<uint16_t> grad(example.grad.size(), half);
        std::vector<float> scratch(made->scratch_bytes() / sizeof(float));
        std::vector<double> sums(made->sum_count());
        F16Depthwise::BackwardTensors backward;
        backward.grad = {grad.data(), Layout::kNXC};
        backward.data = {data.data(), Layout::kNXC};
        backward.sums = sums.data();
        made->Backward(backward, scratch.data(), 0, made->backward_items());
        std::vector<double> expected(sums.size());
        const double value = LoadAsDouble(DataType::kF16, &half);
        example.ForEachProduct(
            [&](int64_t, int64_t w, int64_t) { expected[w] += value * value; });
        for (int64_t j = 0; j < std::ssize(sums); ++j) {
          if (j >= std::ssize(example.weight)) {
            expected[j] = static_cast<double>(elements) * value;
          }
          const auto count = static_cast<double>(elements);
          EXPECT_NEAR(sums[j], expected[j],
                      4 * std::sqrt(count + 2) * 0x1p-24 * expected[j])
              << text << " 1/" << i;
        }
      }
    });
  }
}

TEST(F16Depthwise, AgreesWithPlainLoops) {
  for (const char* text :
       {"conv2d_n2_c64_o64_g64_i9x8_k3_p1", "conv2d_n1_c1_o1_i5_k3",
        "conv2d_n2_c7_o7_g7_i6x9_k3_s2_p1", "conv2d_n1_c24_o24_g24_i7_k5_p2",
        "conv2d_n1_c48_o48_g48_i8x7_k3_d2_p2",
        "conv2d_n1_c130_o130_g130_i5x4_k2x4_s1x2_pb1x0_pe0x2",
        "conv2d_n1_c300_o300_g300_i3_k7_p3", "conv1d_n3_c33_o33_g33_i11_k4_s3",
        "conv2d_n1_c16_o16_g16_i3x20_k1x9_p0x4",
        "conv2d_n2_c16_o16_g16_i40x31_k3_p1",
        "conv2d_n1_c20_o20_g20_i50x30_k3_s2_p1",
        "conv2d_n1_c16_o16_g16_i3_k2_s5_p4"}) {
    SCOPED_TRACE(text);
    const Example example(text);
    ForEachSimdTarget([&] {
      Check(example, Layout::kNXC, Layout::kNXC);
      Check(example, Layout::kNCX, Layout::kNXC);
      Check(example, Layout::kNXC, Layout::kNCX);
    });
  }
}

TEST(F16Depthwise, OtherProblemsAreLeftAlone) {
  for (const char* text :
       {"conv2d_n1_c8_o16_g8_i5_k3", "conv2d_n1_c8_o8_i5_k3",
        "conv3d_n1_c8_o8_g8_i5_k3", "conv2d_n1_c8_o8_g8_i40_k17"}) {
    EXPECT_FALSE(F16Depthwise::Make(*Parse(text))) << text;
  }
}

}  // namespace
}  // namespace convgrad

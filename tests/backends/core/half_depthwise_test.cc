// Depthwise f16 kernels against plain loops, with every instruction set.
#include "backends/core/half_depthwise.h"

#include <vector>

#include "backends/core/element_convert.h"
#include "gtest/gtest.h"
#include "tests/backends/core/simd_targets.h"

namespace convgrad {
namespace {

// Small integers: every sum is exact in f32 and, below 2048, in f16.
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
  std::vector<float> out, grad_data, sums;
};

void Check(const Example& example) {
  const auto made = HalfDepthwise::Make(example.problem);
  ASSERT_TRUE(made);
  const auto data = ToHalf(example.data), grad = ToHalf(example.grad);
  std::vector<uint16_t> out(example.out.size()), grad_data(data.size());
  std::vector<float> wide(example.out.size());
  std::vector<float> sums(made->sum_count());
  // Item by item, and as a range.
  for (int64_t i = 0; i < made->forward_items(); ++i) {
    made->Forward(data.data(), example.weight.data(), example.bias.data(),
                  DataType::kF16, out.data(), i, i + 1);
  }
  made->Forward(data.data(), example.weight.data(), example.bias.data(),
                DataType::kF32, wide.data(), 0, made->forward_items());
  made->BackwardData(example.weight.data(), grad.data(), DataType::kF16,
                     grad_data.data(), 0, made->backward_data_items());
  made->BackwardWeight(data.data(), grad.data(), sums.data(), 0,
                       made->backward_weight_items());
  EXPECT_EQ(out, ToHalf(example.out));
  EXPECT_EQ(wide, example.out);
  EXPECT_EQ(grad_data, ToHalf(example.grad_data));
  EXPECT_EQ(sums, example.sums);
}

TEST(HalfDepthwise, AgreesWithPlainLoops) {
  for (const char* text :
       {"conv2d_n2_c64_o64_g64_i9x8_k3_p1", "conv2d_n1_c1_o1_i5_k3",
        "conv2d_n2_c7_o7_g7_i6x9_k3_s2_p1", "conv2d_n1_c24_o24_g24_i7_k5_p2",
        "conv2d_n1_c48_o48_g48_i8x7_k3_d2_p2",
        "conv2d_n1_c130_o130_g130_i5x4_k2x4_s1x2_pb1x0_pe0x2",
        "conv2d_n1_c300_o300_g300_i3_k7_p3", "conv1d_n3_c33_o33_g33_i11_k4_s3",
        "conv2d_n1_c16_o16_g16_i3x20_k1x9_p0x4"}) {
    SCOPED_TRACE(text);
    const Example example(text);
    ForEachSimdTarget([&] { Check(example); });
  }
}

TEST(HalfDepthwise, OtherProblemsAreLeftAlone) {
  for (const char* text :
       {"conv2d_n1_c8_o16_g8_i5_k3", "conv2d_n1_c8_o8_i5_k3",
        "conv3d_n1_c8_o8_g8_i5_k3", "conv2d_n1_c8_o8_g8_i40_k17"}) {
    EXPECT_FALSE(HalfDepthwise::Make(*Parse(text))) << text;
  }
}

}  // namespace
}  // namespace convgrad

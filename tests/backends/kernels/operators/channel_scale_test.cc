// Compares products with numbers per channel, and sums per channel, with plain
// loops in double, with every instruction set.
#include "backends/kernels/operators/channel_scale.h"

#include <cmath>
#include <limits>
#include <vector>

#include "backends/kernels/operators/batch_norm.h"
#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Returns numbers for each image and channel, and zero for padding.
std::vector<float> Numbers(const ChannelBlocks& blocks, float first) {
  std::vector<float> numbers(blocks.batch * blocks.padded_channels());
  for (int64_t i = 0; i < std::ssize(numbers); ++i) {
    if (i % blocks.padded_channels() >= blocks.channels) continue;
    numbers[i] = first + static_cast<float>(i % 13) / 8;
  }
  return numbers;
}

TEST(ChannelScaleTest, NumbersPerImageAndChannel) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      SCOPED_TRACE(ToText(blocks));
      const std::vector<float> center = Numbers(blocks, 0.5f);
      const std::vector<float> scale = Numbers(blocks, -1);
      const std::vector<float> shift = Numbers(blocks, 2);
      ChannelTensor x = Random(blocks, 1), addend = Random(blocks, 2);
      ChannelTensor y(blocks);
      const int64_t stride = blocks.padded_channels();
      ScaleChannels(blocks, {center.data(), scale.data(), shift.data(), stride},
                    {.x = x.data(), .addend = addend.data(), .y = y.data()},
                    InOrder);
      y.ForEach([&](int64_t n, int64_t c, int64_t s) {
        const int64_t i = n * stride + c;
        const double scaled = (x.At(n, c, s) - center[i]) * scale[i];
        const double want = scaled + shift[i] + addend.At(n, c, s);
        const double terms = std::abs(scaled) + std::abs(shift[i]) +
                             std::abs(addend.At(n, c, s));
        ASSERT_NEAR(y.At(n, c, s), want,
                    UnitRoundoff(blocks.dtype) * std::abs(want) +
                        4 * UnitRoundoff(DataType::kF32) * terms);
      });
      y.ExpectZeroPadding();
    }
  });
}

TEST(ChannelScaleTest, ProductOrSumAloneIsExact) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{1, 16, 4, 16};
    ChannelTensor x = Random(blocks, 1), y(blocks);
    x.Set(0, 0, 0, -0.0);
    x.Set(0, 0, 1, kInf);
    x.Set(0, 0, 2, NAN);
    const std::vector<float> zero(16, 0), minus_zero(16, -0.0f), one(16, 1);
    ScaleChannels(blocks, {zero.data(), one.data(), minus_zero.data()},
                  {.x = x.data(), .y = y.data()}, InOrder);
    EXPECT_EQ(x.bytes(), y.bytes());
  });
}

TEST(ChannelScaleTest, SumsOfImages) {
  ForEachSimdTarget([] {
    for (const ChannelBlocks& blocks : ManyBlocks()) {
      SCOPED_TRACE(ToText(blocks));
      ChannelTensor a = Random(blocks, 1), b = Random(blocks, 2);
      const int64_t padded = blocks.padded_channels();
      std::vector<double> sum(padded, NAN), product(padded, NAN);
      std::vector<double> scratch(BatchNormScratch(blocks), NAN);
      for (const bool has_products : {true, false}) {
        SumChannels(blocks, a.data(), b.data(), scratch.data(), InOrder,
                    {sum.data(), has_products ? product.data() : nullptr});
        std::vector<double> want_sum(padded), want_product(padded);
        a.ForEach([&](int64_t n, int64_t c, int64_t s) {
          want_sum[c] += a.At(n, c, s);
          want_product[c] += a.At(n, c, s) * b.At(n, c, s);
        });
        for (int64_t c = 0; c < padded; ++c) {
          ASSERT_NEAR(sum[c], want_sum[c], 1e-10) << c;
          if (!has_products) continue;
          ASSERT_NEAR(product[c], want_product[c], 1e-10) << c;
        }
      }
    }
  });
}

}  // namespace
}  // namespace convgrad

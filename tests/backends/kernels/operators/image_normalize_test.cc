// Normalisation of images against plain loops in double, with every instruction
// set.
#include "backends/kernels/operators/image_normalize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/operators/channel_tensors.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

void ExpectNormalized(const ChannelBlocks& image, const ChannelBlocks& result,
                      const std::vector<float>& mean,
                      const std::vector<float>& deviation) {
  SCOPED_TRACE(ToText(image) + " to " + ToText(result));
  ChannelTensor x = Random(image, 1, 100, 60);
  ChannelTensor y(result);
  NormalizeImage(image, x.data(), {mean, deviation}, result, y.data(),
                 OnThreeThreads);
  y.ForEach([&](int64_t n, int64_t c, int64_t s) {
    const double want = (x.At(n, c, s) - mean[c]) / deviation[c];
    const double terms =
        (std::abs(x.At(n, c, s)) + std::abs(mean[c])) / deviation[c];
    ASSERT_NEAR(y.At(n, c, s), want,
                UnitRoundoff(result.dtype) * std::abs(want) +
                    2 * UnitRoundoff(DataType::kF32) * terms);
  });
  y.ExpectZeroPadding();
}

TEST(ImageNormalizeTest, FromAnyImageToAnyBlocks) {
  ForEachSimdTarget([] {
    for (DataType from :
         {DataType::kU8, DataType::kU16, DataType::kF32, DataType::kBF16}) {
      for (DataType to : {DataType::kF32, DataType::kBF16}) {
        for (int64_t from_block : {1, 3}) {
          for (int64_t to_block : {1, 3, 8, 16}) {
            for (int64_t spatial : {0, 5, 2500}) {
              ExpectNormalized({2, 3, spatial, from_block, from},
                               {2, 3, spatial, to_block, to}, {123, 117, 104},
                               {58, 57, 0.5f});
            }
          }
        }
      }
    }
  });
}

// An odd count of positions, in more than one chunk.
TEST(ImageNormalizeTest, EveryUnsignedIntegerOf16Bits) {
  ForEachSimdTarget([] {
    const ChannelBlocks blocks{1, 1, 65537, 1, DataType::kU16};
    ChannelTensor x(blocks), y({1, 1, 65537, 1});
    x.ForEach([&](int64_t n, int64_t c, int64_t s) {
      x.Set(n, c, s, static_cast<double>(std::min<int64_t>(s, 65535)));
    });
    const std::vector<float> mean = {0.5f}, deviation = {0.25f};
    NormalizeImage(blocks, x.data(), {mean, deviation}, y.blocks(), y.data(),
                   OnThreeThreads);
    y.ForEach([&](int64_t n, int64_t c, int64_t s) {
      // Each is exact in f32.
      ASSERT_EQ(y.At(n, c, s),
                (static_cast<double>(std::min<int64_t>(s, 65535)) - 0.5) * 4);
    });
  });
}

TEST(ImageNormalizeTest, MoreChannelsThanABlock) {
  ExpectNormalized({1, 10, 7, 1, DataType::kU8}, {1, 10, 7, 8},
                   std::vector<float>(10, 3), std::vector<float>(10, 2));
}

}  // namespace
}  // namespace convgrad

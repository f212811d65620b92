#include "backends/core/data_type.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

uint16_t Narrow(DataType dtype, double value) {
  uint16_t bits;
  StoreRounded(dtype, value, &bits);
  return bits;
}

double Widen(DataType dtype, uint16_t bits) {
  return LoadAsDouble(dtype, &bits);
}

float StoreF32(double value) {
  float stored;
  StoreRounded(DataType::kF32, value, &stored);
  return stored;
}

class SixteenBitTest : public testing::TestWithParam<DataType> {};

TEST_P(SixteenBitTest, AllBitPatternsRoundTrip) {
  for (int pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const double value = Widen(GetParam(), bits);
    const uint16_t back = Narrow(GetParam(), value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(Widen(GetParam(), back))) << pattern;
      ASSERT_EQ(back & 0x8000, bits & 0x8000) << pattern;
    } else {
      ASSERT_EQ(back, bits) << pattern;
    }
  }
}

TEST_P(SixteenBitTest, ValuesGrowWithTheirBits) {
  const uint16_t infinity = Narrow(GetParam(), kInf);
  for (uint16_t bits = 0; bits < infinity; ++bits) {
    ASSERT_LT(Widen(GetParam(), bits), Widen(GetParam(), bits + 1)) << bits;
  }
}

TEST_P(SixteenBitTest, TiesGoToTheEvenNeighbour) {
  const uint16_t infinity = Narrow(GetParam(), kInf);
  for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = Widen(GetParam(), bits);
    const double high = Widen(GetParam(), bits + 1);
    const double middle = low + (high - low) / 2;
    const uint16_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(Narrow(GetParam(), middle), even) << bits;
    ASSERT_EQ(Narrow(GetParam(), -middle), even | 0x8000) << bits;
    ASSERT_EQ(Narrow(GetParam(), std::nextafter(middle, 0)), bits) << bits;
    ASSERT_EQ(Narrow(GetParam(), std::nextafter(middle, kInf)), bits + 1)
        << bits;
  }
}

TEST_P(SixteenBitTest, OverflowGivesInfinityFromHalfAStepBeyondTheLargest) {
  const uint16_t infinity = Narrow(GetParam(), kInf);
  const double largest = Widen(GetParam(), infinity - 1);
  const double step = largest - Widen(GetParam(), infinity - 2);
  EXPECT_EQ(Narrow(GetParam(), std::nextafter(largest + step / 2, 0)),
            infinity - 1);
  EXPECT_EQ(Narrow(GetParam(), largest + step / 2), infinity);
  EXPECT_EQ(Narrow(GetParam(), -1e300), infinity | 0x8000);
  EXPECT_EQ(Widen(GetParam(), infinity), kInf);
}

TEST_P(SixteenBitTest, HalfTheSmallestSubnormalGoesToZeroAndKeepsItsSign) {
  const double smallest = Widen(GetParam(), 1);
  EXPECT_GT(smallest, 0);
  EXPECT_EQ(Narrow(GetParam(), smallest / 2), 0);
  EXPECT_EQ(Narrow(GetParam(), -smallest / 2), 0x8000);
  EXPECT_EQ(Narrow(GetParam(), std::nextafter(smallest / 2, 1)), 1);
  EXPECT_EQ(Narrow(GetParam(), smallest * 1.5), 2);
  EXPECT_EQ(Narrow(GetParam(), -0.0), 0x8000);
}

TEST_P(SixteenBitTest, NaNStaysNaN) {
  EXPECT_TRUE(std::isnan(Widen(GetParam(), Narrow(GetParam(), std::nan("")))));
  EXPECT_TRUE(std::isnan(Widen(GetParam(), Narrow(GetParam(), -std::nan("")))));
}

TEST_P(SixteenBitTest, UnitRoundoffIsHalfTheStepAboveOne) {
  const uint16_t one = Narrow(GetParam(), 1);
  EXPECT_EQ(Widen(GetParam(), one + 1) - 1, 2 * UnitRoundoff(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(, SixteenBitTest,
                         testing::Values(DataType::kBF16, DataType::kF16),
                         [](const auto& info) {
                           return std::string(NameOf(info.param));
                         });

TEST(DataTypeTest, KnownBitsOfTheHalfFormats) {
  EXPECT_EQ(Narrow(DataType::kBF16, 1), 0x3f80);
  EXPECT_EQ(Narrow(DataType::kF16, 1), 0x3c00);
  EXPECT_EQ(Narrow(DataType::kF16, 65504), 0x7bff);
  EXPECT_EQ(Narrow(DataType::kF16, 65519.99), 0x7bff);
  EXPECT_EQ(Narrow(DataType::kF16, 65520), 0x7c00);
  EXPECT_EQ(Widen(DataType::kF16, 0x0001), std::ldexp(1, -24));
  EXPECT_EQ(Widen(DataType::kBF16, 0x0040), std::ldexp(1, -127));
  EXPECT_EQ(Narrow(DataType::kBF16, 3.0e38), 0x7f62);
}

// If 1 + 2^-8 + 2^-30 were first rounded to float, it would become the tie 1 +
// 2^-8 and then round to the even 1.
TEST(DataTypeTest, NarrowingRoundsOnlyOnce) {
  const double above_tie = 1 + std::ldexp(1, -8) + std::ldexp(1, -30);
  EXPECT_EQ(Narrow(DataType::kBF16, above_tie), 0x3f81);
  EXPECT_EQ(Narrow(DataType::kBF16, 1 + std::ldexp(1, -8)), 0x3f80);
}

TEST(DataTypeTest, BFloat16IsTheUpperHalfOfAFloat) {
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    const auto bits = static_cast<uint16_t>(random());
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    if (std::isnan(value)) continue;
    ASSERT_EQ(Widen(DataType::kBF16, bits), value) << bits;
  }
}

TEST(DataTypeTest, Float32RoundsToNearestEvenAndKeepsSubnormals) {
  EXPECT_EQ(StoreF32(1 + std::ldexp(1, -24)), 1.0f);
  EXPECT_EQ(StoreF32(1 + 3 * std::ldexp(1, -24)), 1 + std::ldexp(1.0f, -22));
  EXPECT_EQ(StoreF32(std::ldexp(1, -149)),
            std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(StoreF32(1e39), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(StoreF32(std::nan(""))));
}

TEST(DataTypeTest, NamesParseBack) {
  for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16,
                         DataType::kU8, DataType::kI64, DataType::kU16}) {
    EXPECT_EQ(ParseDataType(NameOf(dtype)), dtype);
  }
  EXPECT_EQ(ParseDataType("f64"), std::nullopt);
  EXPECT_EQ(ParseDataType("F32"), std::nullopt);
}

TEST(DataTypeTest, U16HoldsEachOfItsIntegersAndSaturates) {
  for (int value = 0; value < 0x10000; ++value) {
    const auto bits = static_cast<uint16_t>(value);
    ASSERT_EQ(Widen(DataType::kU16, bits), value);
    ASSERT_EQ(Narrow(DataType::kU16, value), bits);
  }
  EXPECT_EQ(Narrow(DataType::kU16, 65534.5), 65534);
  EXPECT_EQ(Narrow(DataType::kU16, 1.5), 2);
  EXPECT_EQ(Narrow(DataType::kU16, 65536), 65535);
  EXPECT_EQ(Narrow(DataType::kU16, -1), 0);
  EXPECT_EQ(Narrow(DataType::kU16, std::nan("")), 0);
  EXPECT_FALSE(IsFloating(DataType::kU16));
}

TEST(DataTypeTest, SizesAreThoseOfTheFormats) {
  EXPECT_EQ(ByteSizeOf(DataType::kF32), 4);
  EXPECT_EQ(ByteSizeOf(DataType::kBF16), 2);
  EXPECT_EQ(ByteSizeOf(DataType::kF16), 2);
  EXPECT_EQ(ByteSizeOf(DataType::kU16), 2);
  EXPECT_EQ(UnitRoundoff(DataType::kF32), std::ldexp(1, -24));
}

}  // namespace
}  // namespace convgrad

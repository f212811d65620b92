#include "backends/kernels/copies/element_convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/kernels/simd_targets.h"

namespace convgrad {
namespace {

constexpr DataType kNarrowTypes[] = {DataType::kBF16, DataType::kF16};

bool IsNan(DataType dtype, const void* element) {
  return std::isnan(LoadAsDouble(dtype, element));
}

bool IsQuiet(DataType dtype, const void* element) {
  uint32_t bits = 0;
  std::memcpy(&bits, element, ByteSizeOf(dtype));
  const uint32_t quiet = dtype == DataType::kF32    ? 0x400000
                         : dtype == DataType::kBF16 ? 0x40
                                                    : 0x200;
  return bits & quiet;
}

// Converts all of `source` and expects StoreRounded's bits, NaN for NaN.
template <typename From, typename To>
void ExpectRounded(DataType from, const std::vector<From>& source,
                   DataType to) {
  std::vector<To> converted(source.size());
  ConvertRun(from, source.data(), to, converted.data(), source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (IsNan(from, &source[i])) {
      ASSERT_TRUE(IsNan(to, &converted[i]) && IsQuiet(to, &converted[i]))
          << std::hex << source[i] << " gives " << converted[i];
      continue;
    }
    To expected;
    StoreRounded(to, LoadAsDouble(from, &source[i]), &expected);
    ASSERT_EQ(converted[i], expected) << std::hex << source[i];
  }
}

std::vector<uint16_t> AllPatterns() {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

// Returns every 16-bit value as f32, every midpoint between two values, their
// neighbours, and random bits.
std::vector<uint32_t> F32Patterns(DataType narrow) {
  std::vector<uint32_t> bits;
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto low = static_cast<uint16_t>(i);
    const auto high = static_cast<uint16_t>(i + 1);
    const double a = LoadAsDouble(narrow, &low),
                 b = LoadAsDouble(narrow, &high);
    for (double value : {a, (a + b) / 2}) {
      const auto center = std::bit_cast<uint32_t>(static_cast<float>(value));
      bits.insert(bits.end(), {center - 1, center, center + 1});
    }
  }
  for (float edge : {65504.f, 65519.996f, 65520.f, 65536.f, 1e30f, 3.4e38f}) {
    bits.push_back(std::bit_cast<uint32_t>(edge));
    bits.push_back(std::bit_cast<uint32_t>(-edge));
  }
  for (uint32_t special :
       {0u, 1u, 0x7fffffu, 0x800000u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u,
        0x7fbfffffu, 0x7fc00000u, 0x7fffffffu, 0x33000000u, 0x33000001u}) {
    bits.insert(bits.end(), {special, special | 0x80000000u});
  }
  std::mt19937 random(7);
  for (int i = 0; i < 1 << 18; ++i) bits.push_back(random());
  return bits;
}

TEST(ElementConvertTest, WidensEveryPattern) {
  ForEachSimdTarget([] {
    for (DataType dtype : kNarrowTypes) {
      ExpectRounded<uint16_t, uint32_t>(dtype, AllPatterns(), DataType::kF32);
    }
  });
}

TEST(ElementConvertTest, ConvertsEveryPatternBetween16BitTypes) {
  ForEachSimdTarget([] {
    ExpectRounded<uint16_t, uint16_t>(DataType::kF16, AllPatterns(),
                                      DataType::kBF16);
    ExpectRounded<uint16_t, uint16_t>(DataType::kBF16, AllPatterns(),
                                      DataType::kF16);
  });
}

// Includes 65535, which is Inf in f16.
TEST(ElementConvertTest, ConvertsEveryUnsignedInteger) {
  ForEachSimdTarget([] {
    ExpectRounded<uint16_t, uint32_t>(DataType::kU16, AllPatterns(),
                                      DataType::kF32);
    std::vector<uint8_t> bytes(256);
    std::iota(bytes.begin(), bytes.end(), uint8_t{0});
    ExpectRounded<uint8_t, uint32_t>(DataType::kU8, bytes, DataType::kF32);
    for (DataType dtype : kNarrowTypes) {
      ExpectRounded<uint16_t, uint16_t>(DataType::kU16, AllPatterns(), dtype);
      ExpectRounded<uint8_t, uint16_t>(DataType::kU8, bytes, dtype);
    }
  });
}

TEST(ElementConvertTest, RoundsF32OnceToNearestEven) {
  for (DataType dtype : kNarrowTypes) {
    const std::vector<uint32_t> bits = F32Patterns(dtype);
    ForEachSimdTarget([&] {
      ExpectRounded<uint32_t, uint16_t>(DataType::kF32, bits, dtype);
    });
  }
}

// Includes NaN payloads.
TEST(ElementConvertTest, GivesTheSameBitsOnEveryCpu) {
  const std::vector<uint32_t> bits = F32Patterns(DataType::kF16);
  for (DataType dtype : kNarrowTypes) {
    std::vector<uint16_t> first;
    ForEachSimdTarget([&] {
      std::vector<uint16_t> narrow(bits.size());
      ConvertRun(DataType::kF32, bits.data(), dtype, narrow.data(),
                 narrow.size());
      if (first.empty()) first = narrow;
      EXPECT_EQ(narrow, first);
    });
  }
}

TEST(ElementConvertTest, KeepsTheBitsOfEqualTypes) {
  const std::vector<uint16_t> source = AllPatterns();
  for (DataType dtype : kNarrowTypes) {
    std::vector<uint16_t> copy(source.size());
    ConvertRun(dtype, source.data(), dtype, copy.data(), copy.size());
    EXPECT_EQ(copy, source);
  }
}

// Expects no write outside the destination.
void ExpectOnlyItsElements(DataType from, DataType to, int count, int offset) {
  std::vector<char> source(4096), written(2048, '\x5a');
  std::mt19937 random(3);
  for (char& c : source) c = static_cast<char>(random());
  ConvertRun(from, source.data() + offset, to, written.data() + offset, count);
  const size_t end = offset + count * ByteSizeOf(to);
  for (size_t i = 0; i < written.size(); ++i) {
    if (i >= static_cast<size_t>(offset) && i < end) continue;
    ASSERT_EQ(written[i], '\x5a') << count << " at " << offset;
  }
}

TEST(ElementConvertTest, WritesItsElementsAndNoOthers) {
  const DataType types[] = {DataType::kF32, DataType::kBF16, DataType::kF16,
                            DataType::kU16, DataType::kU8};
  ForEachSimdTarget([&] {
    for (DataType from : types) {
      for (DataType to : types) {
        if (!IsFloating(to) && from != to) continue;
        for (int count : {0, 1, 2, 15, 16, 17, 31, 33, 64, 129, 257}) {
          for (int offset : {0, 1, 2, 3, 4, 30, 62}) {
            ExpectOnlyItsElements(from, to, count, offset);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace convgrad

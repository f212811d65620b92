#include "server/flags/byte_count.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using ::testing::HasSubstr;

int64_t Parse(absl::string_view text) {
  ByteCount count(-7);
  std::string error;
  EXPECT_TRUE(AbslParseFlag(text, &count, &error)) << error;
  return count.bytes;
}

TEST(ByteCount, IsANumberWithOrWithoutAUnit) {
  EXPECT_EQ(Parse("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(Parse("2TiB"), int64_t{2} << 40);
  EXPECT_EQ(Parse("64 MiB"), 64 << 20);
  EXPECT_EQ(Parse("3KiB"), 3072);
  EXPECT_EQ(Parse("5B"), 5);
  EXPECT_EQ(Parse("4096"), 4096);
  EXPECT_EQ(Parse("-1"), -1);
  EXPECT_EQ(Parse("9223372036854775807"), 9223372036854775807);
}

TEST(ByteCount, WhatIsNoneIsToldWithAnExample) {
  for (const char* text :
       {"8GB", "8 gigabytes", "GiB", "", "1.5GiB", "9223372036854775807KiB"}) {
    ByteCount count(-7);
    std::string error;
    EXPECT_FALSE(AbslParseFlag(text, &count, &error)) << text;
    EXPECT_THAT(error, HasSubstr("8GiB"));
    EXPECT_EQ(count.bytes, -7);
  }
}

TEST(ByteCount, IsWrittenAsItIsRead) {
  EXPECT_EQ(Parse(AbslUnparseFlag(ByteCount(12345))), 12345);
}

}  // namespace
}  // namespace convgrad

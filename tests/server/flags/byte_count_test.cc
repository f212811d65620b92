#include "server/flags/byte_count.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(ByteCount, IsANumberWithOrWithoutAUnit) {
  const auto parse = [](absl::string_view text) {
    int64_t bytes = -7;
    EXPECT_TRUE(ParseByteCount(text, &bytes)) << text;
    return bytes;
  };
  EXPECT_EQ(parse("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(parse("2TiB"), int64_t{2} << 40);
  EXPECT_EQ(parse("64 MiB"), 64 << 20);
  EXPECT_EQ(parse("3KiB"), 3072);
  EXPECT_EQ(parse("5B"), 5);
  EXPECT_EQ(parse("4096"), 4096);
  EXPECT_EQ(parse("-1"), -1);
  EXPECT_EQ(parse("9223372036854775807"), 9223372036854775807);
}

TEST(ByteCount, WhatIsNoneLeavesTheValue) {
  for (const char* text :
       {"8GB", "8 gigabytes", "GiB", "", "1.5GiB", "9223372036854775807KiB"}) {
    int64_t bytes = -7;
    EXPECT_FALSE(ParseByteCount(text, &bytes)) << text;
    EXPECT_EQ(bytes, -7);
  }
}

}  // namespace
}  // namespace convgrad

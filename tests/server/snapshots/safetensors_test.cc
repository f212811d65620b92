#include "server/snapshots/safetensors.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::HasSubstr;

const std::vector<SafetensorsEntry>& SomeEntries() {
  static const auto& entries =
      *new std::vector<SafetensorsEntry>{{"w", "F32", {2, 3}, 0, 24},
                                         {"a \"name\"", "BF16", {}, 24, 26},
                                         {"none", "U8", {0, 7}, 26, 26},
                                         {"none too", "U8", {0}, 26, 26}};
  return entries;
}

std::string JsonOf(const std::string& file) {
  return file.substr(kSafetensorsLengthBytes);
}

TEST(SafetensorsTest, ReadsWhatItWrites) {
  const std::string file = MakeSafetensorsHeader(SomeEntries());
  EXPECT_EQ(file.size() % 64, 0);
  const auto length = ReadSafetensorsLength(file.substr(0, 8), 1000);
  ASSERT_TRUE(length.ok()) << length.status();
  EXPECT_EQ(*length, static_cast<int64_t>(file.size()) - 8);
  const auto entries = ParseSafetensorsHeader(JsonOf(file), 26);
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ(*entries, SomeEntries());
}

TEST(SafetensorsTest, WritesTheFormat) {
  const std::string file = MakeSafetensorsHeader({{"w", "F32", {2, 3}, 0, 24}});
  const std::string json =
      R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  EXPECT_EQ(JsonOf(file), json + std::string(120 - json.size(), ' '));
  EXPECT_EQ(file.substr(0, 8), std::string("\x78\0\0\0\0\0\0\0", 8));
}

TEST(SafetensorsTest, ReadsAHeaderWithoutTensors) {
  const auto entries =
      ParseSafetensorsHeader(JsonOf(MakeSafetensorsHeader({})), 0);
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_TRUE(entries->empty());
}

TEST(SafetensorsTest, ReadsTensorsInAnyOrder) {
  const auto entries = ParseSafetensorsHeader(
      R"({"b":{"data_offsets":[4,5],"dtype":"U8","shape":[1]},
          "__metadata__":{"format":"pt"},
          "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      5);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[1].name, "b");
}

TEST(SafetensorsTest, RefusesALengthBeyondFileOrBound) {
  const std::string length("\x10\0\0\0\0\0\0\0", 8);
  EXPECT_TRUE(ReadSafetensorsLength(length, 24).ok());
  for (const int64_t file_bytes : {0, 7, 8, 23}) {
    EXPECT_FALSE(ReadSafetensorsLength(length, file_bytes).ok()) << file_bytes;
  }
  EXPECT_FALSE(ReadSafetensorsLength("1234567", 100).ok());
  const int64_t huge = int64_t{1} << 40;
  EXPECT_TRUE(
      ReadSafetensorsLength(std::string("\0\0\0\x01\0\0\0\0", 8), huge).ok());
  const std::string too_long[] = {std::string("\x01\0\0\x01\0\0\0\0", 8),
                                  std::string(8, '\xff')};
  for (const std::string& value : too_long) {
    const auto read = ReadSafetensorsLength(value, huge);
    EXPECT_THAT(read.status().message(), HasSubstr("at most 16777216"));
  }
}

struct Refused {
  std::string header;
  std::string message;  // A part of it.
};

class SafetensorsRefusalTest : public testing::TestWithParam<Refused> {};

TEST_P(SafetensorsRefusalTest, NamesWhatIsWrong) {
  const auto entries = ParseSafetensorsHeader(GetParam().header, 8);
  ASSERT_FALSE(entries.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(entries.status()));
  EXPECT_THAT(entries.status().message(), HasSubstr(GetParam().message));
}

// A header of tensor "a", with these keys instead of the right ones.
std::string OfA(const std::string& keys) {
  return absl::StrCat(R"({"a":{)", keys, "}}");
}

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsRefusalTest,
    testing::Values(
        Refused{"", "no JSON"}, Refused{"{", "no JSON at byte 2"},
        Refused{"{} {}", "no JSON"}, Refused{"{}x", "no JSON"},
        Refused{"[]", "found an array"}, Refused{"3", "found 3"},
        Refused{"null", "found null"}, Refused{R"({"a":true})", "found true"},
        Refused{R"({"a":-1})", "found -1"}, Refused{R"({"a":1.5})", "'1.5'"},
        Refused{"{\"\xff\":{}}", "no JSON"},
        Refused{R"({"a":"text"})", "header.'a': found 'text'"},
        Refused{R"({"a\n":"t"})", R"(header.'a\n')"},
        Refused{"{}", "found tensors of 0 bytes, expected 8"},
        Refused{R"({"__metadata__":{"a":1}})", "header.'__metadata__'.'a'"},
        Refused{R"({"__metadata__":{"a":"1","a":"2"}})", "the key twice"},
        Refused{OfA(""), "expected dtype, shape and data_offsets"},
        Refused{OfA(R"("dtype":"U8","shape":[8])"), "keys dtype, shape"},
        Refused{OfA(R"("dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1)"),
                "'x': found an unknown key"},
        Refused{OfA(R"("dtype":"U8","shape":[8],"shape":[8])"),
                "header.'a'.'shape': found the key twice"},
        Refused{OfA(R"("dtype":["U8"])"), "found an array"},
        Refused{OfA(R"("shape":[[8]])"), "found an array"},
        Refused{OfA(R"("shape":["8"])"), "found '8'"},
        Refused{OfA(R"("shape":8)"), "found 8"},
        Refused{OfA(R"("shape":{"x":1})"), "found an object"},
        Refused{OfA(R"("shape":[-8])"), "found -8"},
        Refused{OfA(R"("shape":[8.0])"), "found '8.0'"},
        Refused{OfA(R"("shape":[9223372036854775808])"), "92233720368547758"},
        Refused{OfA(R"("shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,
                                1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,8])"),
                "a long array"},
        Refused{OfA(R"("dtype":"u8","shape":[8],"data_offsets":[0,8])"),
                "dtype 'u8'"},
        Refused{OfA(R"("dtype":"F32","shape":[8],"data_offsets":[0,8])"),
                "found 8 bytes, expected 32"},
        Refused{OfA(R"("dtype":"U8","shape":[4294967296,4294967296],
                       "data_offsets":[0,8])"),
                "below 2^63"},
        Refused{OfA(R"("dtype":"F64","shape":[2305843009213693952],
                       "data_offsets":[0,0])"),
                "below 2^63"},
        Refused{OfA(R"("dtype":"U8","shape":[8],"data_offsets":[8,0])"),
                "a begin and an end"},
        Refused{OfA(R"("dtype":"U8","shape":[8],"data_offsets":[0,8,16])"),
                "a begin and an end"},
        Refused{OfA(R"("dtype":"U8","shape":[7],"data_offsets":[1,8])"),
                "a hole before"},
        Refused{OfA(R"("dtype":"U8","shape":[7],"data_offsets":[0,7])"),
                "found tensors of 7 bytes, expected 8"},
        Refused{OfA(R"("dtype":"U8","shape":[9],"data_offsets":[0,9])"),
                "found tensors of 9 bytes, expected 8"},
        Refused{OfA(R"("dtype":"U8","shape":[8],"data_offsets":[0,8]},
                    "a":{"dtype":"U8","shape":[0],"data_offsets":[8,8])"),
                "header.'a': found the key twice"},
        Refused{OfA(R"("dtype":"U8","shape":[5],"data_offsets":[0,5]},
                    "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8])"),
                "header.'b'.data_offsets: found 4 (an overlap), expected 5"},
        Refused{OfA(R"("dtype":"U8","shape":[3],"data_offsets":[0,3]},
                    "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8])"),
                "header.'b'.data_offsets: found 4 (a hole before)"}));

TEST(SafetensorsTest, LimitsMetadata) {
  std::string header = R"({"__metadata__":{)";
  for (int i = 0; i < 1025; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"", i, "\":\"\"");
  }
  const auto entries = ParseSafetensorsHeader(header + "}}", 0);
  EXPECT_THAT(entries.status().message(), HasSubstr("more keys"));
}

TEST(SafetensorsTest, ShortensLongNamesInErrors) {
  const std::string name(10000, 'n');
  const auto entries =
      ParseSafetensorsHeader(absl::StrCat("{\"", name, "\":1}"), 0);
  EXPECT_LT(entries.status().message().size(), 200);
}

TEST(SafetensorsTest, ReadsDeepNestingWithoutRecursion) {
  EXPECT_FALSE(ParseSafetensorsHeader(std::string(1 << 20, '['), 0).ok());
  EXPECT_FALSE(ParseSafetensorsHeader(
                   "{\"a\":{\"shape\":" + std::string(1 << 20, '['), 0)
                   .ok());
}

}  // namespace
}  // namespace convgrad

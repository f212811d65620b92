#include "tests/cases/case_record.h"

#include <string>

#include "gmock/gmock.h"
#include "tests/cases/case_server.h"
#include "tests/cases/published_check.h"

namespace convgrad::testing_support {
namespace {

using ::testing::ElementsAre;

// The record is 1 2 3 correlated with 1 1, plus a bias of 10.
constexpr char kRecord[] =
    R"({"id": "one", "name": "n", "ndim": 1, "n": 1, "ic": 1, "oc": 1,
        "groups": 1, "in": [3], "k": [2], "stride": [1], "dilation": [1],
        "pad_begin": [0], "pad_end": [0], "transposed": false, "out": [2],
        "macs": 4, "tier": "S", "relu": true,
        "inputs": {"x": [1, 2, 3], "w": [1.0, 1.0], "b": [10]},
        "expected": {"y": [13, 15]}, "bit_exact": ["f32", "bf16"]})";

std::string Replaced(std::string text, const std::string& from,
                     const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(ParseCaseTest, ReadsProblemAndPublishedValues) {
  const auto record = ParseCase(kRecord);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(ToString(record->problem), "conv1d_n1_c1_o1_i3_k2_b1_relu");
  EXPECT_TRUE(record->validity.ok());
  EXPECT_THAT(record->inputs[static_cast<size_t>(Operand::kInput)],
              ElementsAre(1, 2, 3));
  EXPECT_THAT(record->expected_results, ElementsAre(Result::kOutput));
  EXPECT_THAT(record->expected[static_cast<size_t>(Result::kOutput)],
              ElementsAre(13, 15));
  EXPECT_TRUE(IsPublishedIn(*record, DataType::kBF16));
  EXPECT_FALSE(IsPublishedIn(*record, DataType::kF16));
}

TEST(ParseCaseTest, SaysWhatIsInvalid) {
  const auto record =
      ParseCase(Replaced(kRecord, "\"out\": [2]", "\"out\": [3]"));
  ASSERT_TRUE(record.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(record->validity));
}

TEST(ParseCaseTest, RejectsWhatIsNoRecord) {
  EXPECT_FALSE(ParseCase("{").ok());
  EXPECT_FALSE(ParseCase("[]").ok());
  EXPECT_FALSE(
      ParseCase(Replaced(kRecord, "\"k\": [2]", "\"k\": [2, 2]")).ok());
  EXPECT_FALSE(ParseCase(Replaced(kRecord, "\"S\"", "\"X\"")).ok());
}

TEST(CheckPublishedTest, SeesAWrongNumber) {
  const auto server = CaseServer::Start({});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto verdict = [&](const std::string& text, DataType dtype) {
    return CheckPublished(**server, *ParseCase(text), dtype,
                          RowMajorLayouts()[0], 0)
        .verdict;
  };
  const std::string wrong = Replaced(kRecord, "[13, 15]", "[13, 15.0625]");
  EXPECT_EQ(verdict(kRecord, DataType::kF32), Verdict::kPassed);
  EXPECT_EQ(verdict(wrong, DataType::kF32), Verdict::kFailed);
  EXPECT_EQ(verdict(wrong, DataType::kBF16), Verdict::kFailed);
  const std::string near =
      Replaced(Replaced(kRecord, "[13, 15]", "[13, 15.0001]"), "\"f32\", ", "");
  EXPECT_EQ(verdict(near, DataType::kF32), Verdict::kPassed);
}

}  // namespace
}  // namespace convgrad::testing_support

#include "backends/core/status.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(StatusTest, MessageNamesFieldFoundAndExpected) {
  const absl::Status status =
      InvalidField(Reason::kOutOfRange, "problem.stride[0]", "0", "at least 1");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "problem.stride[0]: found 0, expected at least 1");
}

TEST(StatusTest, DetailSurvivesAsData) {
  const absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted,
                {Reason::kLimitExceeded, "request", "10 bytes", "at most 5"});
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kLimitExceeded);
  EXPECT_EQ(detail->field, "request");
  EXPECT_EQ(detail->found, "10 bytes");
  EXPECT_EQ(detail->expected, "at most 5");
}

TEST(StatusTest, PlainStatusHasNoDetail) {
  EXPECT_FALSE(DetailOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(DetailOf(absl::InternalError("x")).has_value());
}

TEST(StatusTest, PrefixGoesBeforeTheField) {
  const absl::Status status = WithFieldPrefix(
      InvalidField(Reason::kMissing, "weight", "nothing", "a tensor"),
      "requests[3].");
  EXPECT_EQ(status.message(),
            "requests[3].weight: found nothing, expected a tensor");
  EXPECT_EQ(DetailOf(status)->field, "requests[3].weight");
  EXPECT_TRUE(WithFieldPrefix(absl::OkStatus(), "a.").ok());
}

TEST(StatusTest, ReasonsHaveStableNames) {
  EXPECT_EQ(ReasonName(Reason::kMalformed), "MALFORMED");
  EXPECT_EQ(ReasonName(Reason::kByteCountMismatch), "BYTE_COUNT_MISMATCH");
  EXPECT_EQ(ReasonName(static_cast<Reason>(999)), "INTERNAL");
}

}  // namespace
}  // namespace convgrad

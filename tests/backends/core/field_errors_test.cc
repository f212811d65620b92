#include "backends/core/field_errors.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

struct Case {
  absl::Status status;
  absl::StatusCode code;
  Reason reason;
};

TEST(FieldErrorsTest, HaveTheirCodeReasonAndText) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;
  constexpr auto kLate = absl::StatusCode::kDeadlineExceeded;
  const Case cases[] = {
      {InvalidEnum("a.b", 1, "two"), kInvalid, Reason::kInvalidEnum},
      {Malformed("a.b", 1, "two"), kInvalid, Reason::kMalformed},
      {Missing("a.b", 1, "two"), kInvalid, Reason::kMissing},
      {OutOfRange("a.b", 1, "two"), kInvalid, Reason::kOutOfRange},
      {ShapeMismatch("a.b", 1, "two"), kInvalid, Reason::kShapeMismatch},
      {DeadlineExceeded("a.b", 1, "two"), kLate, Reason::kDeadline},
      {FailedPrecondition(Reason::kTakenOver, "a.b", 1, "two"), kFailed,
       Reason::kTakenOver},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(each.status.code(), each.code);
    EXPECT_EQ(each.status.message(), "a.b: found 1, expected two");
    const auto detail = DetailOf(each.status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->reason, each.reason);
    EXPECT_EQ(detail->field, "a.b");
    EXPECT_EQ(detail->found, "1");
    EXPECT_EQ(detail->expected, "two");
  }
}

}  // namespace
}  // namespace convgrad

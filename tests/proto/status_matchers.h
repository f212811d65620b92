// `ExpectError` checks the code, reason and field of an error.
#pragma once

#include "absl/status/status.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {

inline void ExpectError(const absl::Status& status, absl::StatusCode code,
                        Reason reason, const std::string& field) {
  EXPECT_EQ(status.code(), code) << status;
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value()) << status;
  EXPECT_EQ(ReasonName(detail->reason), ReasonName(reason)) << status;
  EXPECT_EQ(detail->field, field) << status;
}

inline void ExpectInvalid(const absl::Status& status, Reason reason,
                          const std::string& field) {
  ExpectError(status, absl::StatusCode::kInvalidArgument, reason, field);
}

}  // namespace convgrad

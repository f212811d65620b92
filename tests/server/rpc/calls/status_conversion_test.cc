#include "server/rpc/calls/status_conversion.h"

#include <map>

#include "backends/core/status.h"
#include "convgrad/v1/error.pb.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

std::map<std::string, std::string> TrailersMapOf(const absl::Status& status) {
  std::map<std::string, std::string> map;
  for (const auto& [key, value] : TrailersOf(status)) map[key] = value;
  return map;
}

TEST(StatusConversion, KeepsEveryCode) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(static_cast<int>(ToGrpcStatus(status).error_code()), code);
  }
  EXPECT_EQ(ToGrpcStatus(absl::UnknownError("why")).error_message(), "why");
}

TEST(StatusConversion, CutsMessagesAndKeepsThemPrintable) {
  const absl::Status status =
      absl::InvalidArgumentError(std::string(5000, '\xff'));
  EXPECT_EQ(ToGrpcStatus(status).error_message(), std::string(1024, '?'));
}

TEST(StatusConversion, SendsTheDetail) {
  const auto trailers = TrailersMapOf(
      InvalidField(Reason::kShapeMismatch, "a.dims", "[1]", "[2]\x80"));
  ASSERT_EQ(trailers.size(), 1u);
  v1::ErrorDetail detail;
  ASSERT_TRUE(detail.ParseFromString(trailers.at("convgrad-error-bin")));
  EXPECT_EQ(detail.reason(), "SHAPE_MISMATCH");
  EXPECT_EQ(detail.field(), "a.dims");
  EXPECT_EQ(detail.found(), "[1]");
  EXPECT_EQ(detail.expected(), "[2]?");
}

TEST(StatusConversion, StaysFarBelowTheLimitOfTrailers) {
  const std::string large(100000, 'x');
  size_t bytes = 0;
  for (const auto& [key, value] :
       TrailersOf(InvalidField(Reason::kMalformed, large, large, large))) {
    bytes += key.size() + value.size();
  }
  EXPECT_LT(bytes, 2000u);
}

TEST(StatusConversion, AsksForARetryExactlyWhenBusy) {
  const auto with = [](absl::StatusCode code, Reason reason) {
    return TrailersMapOf(MakeError(code, {reason, "f", "a", "b"}))
        .count("grpc-retry-pushback-ms");
  };
  EXPECT_EQ(with(absl::StatusCode::kResourceExhausted, Reason::kBusy), 1u);
  EXPECT_EQ(with(absl::StatusCode::kResourceExhausted, Reason::kLimitExceeded),
            0u);
  EXPECT_EQ(with(absl::StatusCode::kUnavailable, Reason::kDraining), 0u);
}

TEST(StatusConversion, AddsNothingWithoutDetail) {
  EXPECT_TRUE(TrailersOf(absl::OkStatus()).empty());
  EXPECT_TRUE(TrailersOf(absl::InternalError("why")).empty());
}

}  // namespace
}  // namespace convgrad

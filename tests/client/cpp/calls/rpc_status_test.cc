// Tests how a client converts a server's status and trailers.
#include "client/cpp/calls/rpc_status.h"

#include <string>

#include "backends/core/status.h"
#include "client/cpp/calls/retries.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cpp/scripted_sessions.h"

namespace convgrad {
namespace {

using testing::HasSubstr;

// Returns the status of FromRpc for a server's answer.
absl::Status StatusOf(const Answer& answer) {
  ScriptedSessions sessions;
  sessions.Follow([&](const Attempt&) { return answer; });
  grpc::ClientContext context;
  return sessions.Send("", &context).status();
}

// Returns the message of a status that gRPC itself made.
std::string Explained(const std::string& message) {
  const grpc::ClientContext context;
  return std::string(
      FromRpc({grpc::StatusCode::UNAVAILABLE, message}, context).message());
}

TEST(FromRpc, KeepsCodeMessageAndDetail) {
  const absl::Status status =
      StatusOf({grpc::StatusCode::NOT_FOUND, "OUT_OF_RANGE"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "refused");
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kOutOfRange);
  EXPECT_EQ(detail->field, "convgrad-session-sequence");
  EXPECT_EQ(detail->found, "that");
  EXPECT_EQ(detail->expected, "this");
}

TEST(FromRpc, AConnectionThatClosesIsUnavailable) {
  const grpc::ClientContext context;
  const auto of = [&](const char* message) {
    return FromRpc({grpc::StatusCode::UNKNOWN, message}, context).code();
  };
  EXPECT_EQ(of("Stream removed"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(of("Stream"), absl::StatusCode::kUnknown);
}

TEST(FromRpc, AStatusWithoutTrailersHasNoDetail) {
  EXPECT_TRUE(StatusOf({}).ok());
  const absl::Status status = StatusOf({grpc::StatusCode::ABORTED});
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_FALSE(DetailOf(status).has_value());
  EXPECT_FALSE(PushbackOf(status).has_value());
}

TEST(FromRpc, AReasonOfALaterServerIsInternal) {
  const auto detail =
      DetailOf(StatusOf({grpc::StatusCode::ABORTED, "NOT_INVENTED_YET"}));
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason, Reason::kInternal);
}

TEST(FromRpc, SaysWhyThereIsNoConnection) {
  EXPECT_THAT(Explained("failed to connect; last error: wrong version number"),
              HasSubstr("needs no ca"));
  EXPECT_THAT(
      Explained("last error: UNKNOWN: ipv4:127.0.0.1:7: timed out "
                "before receiving SETTINGS frame"),
      HasSubstr("(this address accepts connections but doesn't answer"));
  EXPECT_EQ(Explained("wrong version number"), "wrong version number");
  EXPECT_EQ(Explained("last error: else"), "last error: else");
}

TEST(PushbackOf, TakesNoNegativeAndNoOtherText) {
  for (const auto& [text, expected] :
       {std::pair("120", absl::Milliseconds(120)),
        std::pair("0", absl::ZeroDuration())}) {
    EXPECT_EQ(PushbackOf(StatusOf(
                  {grpc::StatusCode::RESOURCE_EXHAUSTED, "BUSY", -1, text})),
              expected);
  }
  for (const char* text : {"-1", "soon", "1.5", "2147483648"}) {
    EXPECT_FALSE(PushbackOf(StatusOf({grpc::StatusCode::RESOURCE_EXHAUSTED,
                                      "BUSY", -1, text}))
                     .has_value())
        << text;
  }
}

TEST(RetryPolicy, WaitsAsLongAsTheServerSays) {
  const RetryPolicy policy;
  const auto delay = policy.DelayAfter(
      StatusOf({grpc::StatusCode::RESOURCE_EXHAUSTED, "BUSY", -1, "60000"}), 1);
  ASSERT_TRUE(delay.has_value());
  EXPECT_GE(*delay, absl::Minutes(1));
}

}  // namespace
}  // namespace convgrad

#include "server/rpc/transport/gate.h"

#include <list>
#include <string>
#include <utility>

#include "backends/core/status.h"
#include "grpcpp/test/server_context_test_spouse.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TokenTable Table(absl::string_view text) { return *TokenTable::Parse(text); }

Reason ReasonOf(const absl::Status& status) {
  return DetailOf(status).value_or(ErrorDetail{}).reason;
}

class GateTest : public testing::Test {
 protected:
  // Enters like a call with this metadata; "" means none. Calls without a token
  // come from the same host.
  absl::StatusOr<CallPermit> Enter(const std::string& authorization,
                                   ClientRole role = ClientRole::kInfer) {
    grpc::ServerContext context;
    grpc::testing::ServerContextTestSpouse spouse(&context);
    if (!authorization.empty()) {
      spouse.AddClientMetadata("authorization", authorization);
    }
    return gate_.Enter(context, role);
  }
  absl::StatusCode CodeOf(const std::string& authorization,
                          ClientRole role = ClientRole::kInfer) {
    return Enter(authorization, role).status().code();
  }

  Gate gate_;
};

constexpr char kFirst[] = "Bearer first-first-first";
constexpr char kSecond[] = "Bearer second-second-second";

TEST_F(GateTest, LetsEverybodyDoEverythingWithoutTokens) {
  EXPECT_TRUE(Enter("", ClientRole::kAdmin).ok());
  EXPECT_TRUE(Enter("Bearer whatever", ClientRole::kAdmin).ok());
}

TEST_F(GateTest, LetsInWhoseTokenHasTheRoleOrAHigherOne) {
  gate_.SetTokens(
      Table("serving infer first-first-first\n"
            "trainer train second-second-second"));
  EXPECT_EQ(CodeOf(kFirst, ClientRole::kInfer), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(kFirst, ClientRole::kTrain),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(kSecond, ClientRole::kInfer), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(kSecond, ClientRole::kTrain), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(kSecond, ClientRole::kAdmin),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Enter(kSecond)->client(), "trainer");
}

TEST_F(GateTest, AsksForATokenThatItKnows) {
  gate_.SetTokens(Table("serving infer first-first-first"));
  EXPECT_EQ(CodeOf("bEaReR first-first-first"), absl::StatusCode::kOk);
  for (const char* other :
       {"", "Basic first-first-first", "first-first-first", "Bearer ",
        "Bearer first-first-firs", "Bearer  first-first-first"}) {
    EXPECT_EQ(CodeOf(other), absl::StatusCode::kUnauthenticated) << other;
  }
}

TEST_F(GateTest, ANewTableCountsFromTheNextCall) {
  gate_.SetTokens(Table("serving infer first-first-first"));
  gate_.SetLimits({.calls = 1});
  absl::StatusOr<CallPermit> permit = Enter(kFirst);
  ASSERT_TRUE(permit.ok()) << permit.status();
  gate_.SetTokens(Table("serving infer second-second-second"));
  EXPECT_EQ(CodeOf(kFirst), absl::StatusCode::kUnauthenticated);
  // The call in flight still counts for its client, which has the same name.
  EXPECT_EQ(ReasonOf(Enter(kSecond).status()), Reason::kBusy);
  *permit = CallPermit();
  EXPECT_TRUE(Enter(kSecond).ok());
  gate_.SetTokens(Table(""));
  EXPECT_EQ(CodeOf(kSecond), absl::StatusCode::kUnauthenticated);
}

TEST_F(GateTest, LimitsTheCallsOfEachClientByItself) {
  gate_.SetTokens(
      Table("serving infer first-first-first\n"
            "other infer second-second-second"));
  gate_.SetLimits({.calls = 2});
  std::list<CallPermit> permits;
  for (int i = 0; i < 2; ++i) permits.push_back(*Enter(kFirst));
  const absl::Status refused = Enter(kFirst).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), Reason::kBusy);
  EXPECT_EQ(DetailOf(refused)->field, "client 'serving'");
  EXPECT_TRUE(Enter(kSecond).ok());
  permits.pop_front();
  EXPECT_TRUE(Enter(kFirst).ok());
}

TEST_F(GateTest, ARefusedCallDoesNotCount) {
  gate_.SetTokens(Table("serving infer first-first-first"));
  gate_.SetLimits({.calls = 1});
  EXPECT_FALSE(Enter(kFirst, ClientRole::kTrain).ok());
  absl::StatusOr<CallPermit> permit = Enter(kFirst);
  ASSERT_TRUE(permit.ok()) << permit.status();
  EXPECT_FALSE(Enter(kFirst).ok());
  *permit = CallPermit();
  EXPECT_TRUE(Enter(kFirst).ok());
}

TEST_F(GateTest, LimitsTheBytesOfAClientsCallsTogether) {
  gate_.SetLimits({.bytes = 100});
  CallPermit first = *Enter("");
  CallPermit second = *Enter("");
  EXPECT_TRUE(first.Hold(60).ok());
  EXPECT_EQ(ReasonOf(second.Hold(41)), Reason::kBusy);
  EXPECT_TRUE(second.Hold(40).ok());
  // The new bytes replace those of the call.
  EXPECT_TRUE(first.Hold(50).ok());
  EXPECT_TRUE(second.Hold(50).ok());
  // A refusal keeps the bytes of the call.
  EXPECT_EQ(ReasonOf(first.Hold(51)), Reason::kBusy);
  EXPECT_EQ(ReasonOf(second.Hold(51)), Reason::kBusy);
}

TEST_F(GateTest, RefusesForGoodWhatOneCallMayNeverHold) {
  gate_.SetLimits({.bytes = 100});
  CallPermit first = *Enter("");
  CallPermit second = *Enter("");
  ASSERT_TRUE(first.Hold(100).ok());
  EXPECT_EQ(ReasonOf(second.Hold(101)), Reason::kLimitExceeded);
}

TEST_F(GateTest, TheBytesOfACallGoWithIt) {
  gate_.SetLimits({.bytes = 100});
  CallPermit first = *Enter("");
  CallPermit second = *Enter("");
  ASSERT_TRUE(first.Hold(100).ok());
  EXPECT_FALSE(second.Hold(1).ok());
  // Moving a permit doesn't end its call.
  CallPermit moved = std::move(first);
  EXPECT_FALSE(second.Hold(1).ok());
  moved = CallPermit();
  EXPECT_TRUE(second.Hold(100).ok());
}

TEST_F(GateTest, ZeroIsNoLimit) {
  std::list<CallPermit> permits;
  for (int i = 0; i < 100; ++i) permits.push_back(*Enter(""));
  for (CallPermit& permit : permits)
    EXPECT_TRUE(permit.Hold(int64_t{1} << 40).ok());
}

TEST_F(GateTest, ACallThatNeverEnteredHoldsWhatItLikes) {
  EXPECT_TRUE(CallPermit().Hold(int64_t{1} << 40).ok());
}

}  // namespace
}  // namespace convgrad

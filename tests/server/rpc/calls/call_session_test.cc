#include "server/rpc/calls/call_session.h"

#include <map>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "gtest/gtest.h"
#include "proto/call_metadata.h"

namespace convgrad {
namespace {

class CallSessionTest : public ::testing::Test {
 protected:
  CallSessionTest() {
    metadata_[kSessionKey] = session_->settings().id;
    metadata_[kEpochKey] = "1";
    metadata_[kSequenceKey] = "1";
    metadata_[kCallIdKey] = std::string(16, 'c');
  }
  SessionUse Open() {
    SessionRequest request;
    request.open_id = std::string(16, 'o');
    return *table_.Open({"test", false, false}, request);
  }
  absl::Status Enter(CallSession* session) {
    const auto metadata = [this](absl::string_view key) -> absl::string_view {
      const auto found = metadata_.find(std::string(key));
      if (found == metadata_.end()) return "";
      return found->second;
    };
    return session->Enter(&table_, metadata, CallPermit(),
                          /*only_computes=*/false);
  }
  // Returns the field that is refused; "" if none.
  std::string RefusedField() {
    CallSession session;
    const absl::Status status = Enter(&session);
    const auto detail = DetailOf(status);
    return detail ? detail->field : "";
  }
  // Enters with `metadata_` and waits for the turn, which comes at once.
  void Run(CallSession* session) {
    ASSERT_TRUE(Enter(session).ok());
    bool runs = false;
    session->Await(
        absl::InfiniteFuture(),
        [&](const ChangeOrder::Decision& decision) { runs = decision.runs(); },
        nullptr);
    ASSERT_TRUE(runs);
  }
  // Keeps a tensor of 8 numbers as `name`, as a write of a change.
  void Write(CallSession* session, const std::string& name) {
    const auto place = session->Write(name, tensor_, nullptr);
    ASSERT_TRUE(place.ok());
    EXPECT_TRUE(place->is_kept);
    EXPECT_EQ(place->addend, nullptr);
    ASSERT_TRUE(session->Promise().ok());
  }
  // Commits the change of `session`; the next one has the number `next`.
  void Commit(CallSession* session, int64_t next) {
    ASSERT_TRUE(session->Commit(std::make_shared<int>(0)).ok());
    absl::Status ok = absl::OkStatus();
    EXPECT_EQ(session->End(&ok), next - 1);
    metadata_[kSequenceKey] = std::to_string(next);
  }

  std::shared_ptr<CallMemory> memory_ = std::make_shared<CallMemory>(
      int64_t{1} << 20, 1, 0,
      [](const std::function<void()>& task) { task(); });
  SessionTable table_{std::make_shared<KeptMemory>(memory_, int64_t{1} << 20),
                      ClientQuotas::Limits(),
                      [this] { return absl::Now() + clock_step_; }};
  // Difference between the sessions' clock and the system's.
  absl::Duration clock_step_;
  SessionUse session_ = Open();
  const TensorDescriptor tensor_{DataType::kF32, Layout::kNCX, {1, 8}};
  std::map<std::string, std::string> metadata_;
};

TEST_F(CallSessionTest, ACallWithoutASessionHasNone) {
  metadata_.clear();
  CallSession session;
  EXPECT_TRUE(Enter(&session).ok());
  EXPECT_FALSE(session.in_session());
  EXPECT_FALSE(session.is_change());
  EXPECT_FALSE(session.CheckId("", "session").ok());
}

TEST_F(CallSessionTest, RefusesMetadataThatMakesNoSense) {
  const std::map<std::string, std::string> good = metadata_;
  EXPECT_EQ(RefusedField(), "");
  metadata_.erase(kSessionKey);
  EXPECT_EQ(RefusedField(), kSessionKey);
  for (const auto& key : {kEpochKey, kSequenceKey, kAcknowledgedKey}) {
    for (const char* number : {"x", "-1", "1 2", "9223372036854775808"}) {
      metadata_ = good;
      metadata_[std::string(key)] = number;
      EXPECT_EQ(RefusedField(), key) << number;
    }
  }
  for (size_t size : {0U, 15U, 17U}) {
    metadata_ = good;
    metadata_[kCallIdKey] = std::string(size, 'c');
    EXPECT_EQ(RefusedField(), kCallIdKey) << size;
  }
  metadata_ = good;
  metadata_.erase(kSequenceKey);
  metadata_[kAfterKey] = "soon";
  EXPECT_EQ(RefusedField(), kAfterKey);
}

TEST_F(CallSessionTest, AnUnknownSessionIsNotFound) {
  metadata_[kSessionKey] = std::string(16, 's');
  CallSession session;
  EXPECT_TRUE(absl::IsNotFound(Enter(&session)));
}

TEST_F(CallSessionTest, FieldsNameThisSessionOrNone) {
  CallSession session;
  Run(&session);
  EXPECT_TRUE(session.CheckId("", "tensor.kept").ok());
  EXPECT_TRUE(session.CheckId(session_->settings().id, "tensor.kept").ok());
  const absl::Status status = session.CheckId("another", "tensor.kept");
  EXPECT_EQ(DetailOf(status)->field, "tensor.kept.session_id");
  absl::Status over = absl::CancelledError("");
  session.End(&over);
}

TEST_F(CallSessionTest, ADeadlineHoldsOnTheSessionsClock) {
  clock_step_ = -absl::Hours(1);
  metadata_[kSequenceKey] = "2";
  CallSession session;
  ASSERT_TRUE(Enter(&session).ok());
  absl::Status why;
  session.Await(
      SteadyNow(),
      [&](const ChangeOrder::Decision& decision) { why = decision.why; },
      nullptr);
  table_.Expire();
  EXPECT_TRUE(absl::IsDeadlineExceeded(why)) << why;
  session.End(&why);
}

TEST_F(CallSessionTest, AReadChangesNothing) {
  metadata_.erase(kSequenceKey);
  CallSession session;
  Run(&session);
  EXPECT_TRUE(session.in_session());
  EXPECT_EQ(DetailOf(session.CheckChange("session"))->field, "session");
  absl::Status ok = absl::OkStatus();
  EXPECT_EQ(session.End(&ok), 0);
}

TEST_F(CallSessionTest, ASumStartsWithTheOldVersion) {
  CallSession first;
  Run(&first);
  const auto start = first.Add("x", tensor_, "sum", nullptr);
  ASSERT_TRUE(start.ok());
  EXPECT_EQ(start->addend, nullptr);
  ASSERT_TRUE(first.Promise().ok());
  Commit(&first, 2);

  CallSession second;
  Run(&second);
  const std::byte* const old = second.state().tensors.at("x").bytes->data();
  const auto sum = second.Add("x", tensor_, "sum", nullptr);
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(static_cast<const void*>(sum->addend), old);
  EXPECT_NE(static_cast<const void*>(sum->data), old);
  ASSERT_TRUE(second.Promise().ok());
  Commit(&second, 3);

  CallSession other;
  Run(&other);
  TensorDescriptor shorter = tensor_;
  shorter.dims = {1, 4};
  const auto refused = other.Add("x", shorter, "sum", nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(DetailOf(refused.status())->field, "sum");
  EXPECT_TRUE(other.writes()->tensors.empty());
  absl::Status over = absl::CancelledError("");
  other.End(&over);
}

TEST_F(CallSessionTest, ACommitMakesTheWritesOfAChangeVisible) {
  CallSession change;
  Run(&change);
  Write(&change, "x");
  EXPECT_TRUE(absl::IsNotFound(change.Find("x", 0, "tensor").status()));
  EXPECT_TRUE(change.Commit(std::make_shared<int>(0)).ok());
  absl::Status ok = absl::OkStatus();
  EXPECT_EQ(change.End(&ok), 1);

  metadata_.erase(kSequenceKey);
  CallSession read;
  Run(&read);
  EXPECT_EQ(read.Find("x", 0, "tensor")->version, 1);
  EXPECT_TRUE(read.Find("x", 1, "tensor").ok());
  const absl::Status old = read.Find("x", 2, "tensor.version").status();
  EXPECT_EQ(DetailOf(old)->field, "tensor.version");
  EXPECT_EQ(read.End(&ok), 1);
}

TEST_F(CallSessionTest, AChangeThatIsntCommittedLeavesNothing) {
  {
    CallSession change;
    Run(&change);
    Write(&change, "x");
    absl::Status failed = absl::InternalError("failed");
    EXPECT_EQ(change.End(&failed), 0);
    EXPECT_EQ(failed.message(), "failed");
  }
  EXPECT_EQ(session_->state()->number, 0);
  EXPECT_TRUE(session_->state()->tensors.empty());
  EXPECT_EQ(memory_->pool.outstanding(), 0);
  EXPECT_EQ(session_->info().epoch, 2);
}

TEST_F(CallSessionTest, BusyDecidesNothing) {
  CallSession change;
  Run(&change);
  absl::Status busy = MakeError(absl::StatusCode::kResourceExhausted,
                                {Reason::kBusy, "memory", "", ""});
  EXPECT_EQ(change.End(&busy), std::nullopt);
  EXPECT_EQ(session_->info().epoch, 1);
}

TEST_F(CallSessionTest, OneThatWaitsCanWithdraw) {
  metadata_[kSequenceKey] = "2";
  CallSession waits;
  ASSERT_TRUE(Enter(&waits).ok());
  EXPECT_FALSE(waits.Withdraw());
  waits.Await(
      absl::InfiniteFuture(),
      [](const ChangeOrder::Decision&) { FAIL() << "it has withdrawn"; },
      nullptr);
  EXPECT_TRUE(waits.Withdraw());
  EXPECT_FALSE(waits.Withdraw());
  metadata_[kSequenceKey] = "1";
  CallSession first;
  Run(&first);
  EXPECT_TRUE(first.Commit(std::make_shared<int>(0)).ok());
}

}  // namespace
}  // namespace convgrad

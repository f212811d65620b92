#include "server/sessions/session_table.h"

#include <memory>
#include <string>

#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

const SessionCaller kAda{"ada", true, false};
const SessionCaller kBob{"bob", true, false};
const SessionCaller kAdmin{"root", true, true};
const SessionCaller kHost{"ipv4:10.0.0.1", false, true};

class SessionTableTest : public ::testing::Test {
 protected:
  absl::StatusOr<SessionUse> Open(const SessionCaller& caller, char open_id,
                                  const std::string& name = "") {
    SessionRequest request;
    request.open_id = std::string(16, open_id);
    request.name = name;
    request.lease = absl::Seconds(60);
    request.readers = caller.has_identity ? std::vector<std::string>{"reader"}
                                          : std::vector<std::string>{};
    return table_.Open(caller, request);
  }
  std::string IdOf(const SessionCaller& caller, char open_id,
                   const std::string& name = "") {
    return (*Open(caller, open_id, name))->settings().id;
  }
  absl::Status Close(const SessionCaller& caller, const std::string& id,
                     int64_t held = 0) {
    absl::Status status = absl::UnknownError("not told");
    table_.Close(caller, id, held,
                 [&](const absl::Status& closed) { status = closed; });
    return status;
  }
  void Pass(absl::Duration time) {
    now_ += time;
    table_.Expire();
  }
  // Writes `floats` numbers as change `sequence`.
  absl::Status Put(const SessionUse& use, int64_t sequence, int64_t floats,
                   const std::string& name = "x") {
    absl::Status status = absl::UnknownError("not told");
    use->Arrive(
        {1, sequence, std::string(16, 'c'), 0}, now_,
        {absl::InfiniteFuture(), [&](const ChangeOrder::Decision& decision) {
           status = decision.why;
         }});
    RETURN_IF_ERROR(status);
    TensorDescriptor tensor{DataType::kF32, Layout::kNCX, {1, floats}};
    const auto run = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(auto bytes,
                       table_.memory()->Take(*ByteSize(tensor), nullptr));
      KeptWrites writes;
      writes.tensors[name] = KeptTensor{tensor, std::move(bytes), 0};
      RETURN_IF_ERROR(use->Promise(writes, {}));
      return use->Commit(writes, std::make_shared<int>(0), now_).status();
    };
    status = run();
    if (!status.ok()) status = use->Fail(status, now_);
    return status;
  }

  const std::shared_ptr<CallMemory> memory_ = std::make_shared<CallMemory>(
      1 << 20, 8, 0, [](const auto& task) { task(); });
  absl::Time now_ = absl::UnixEpoch();
  SessionTable table_{std::make_shared<KeptMemory>(memory_, 1 << 19),
                      {/*sessions=*/3, /*kept_bytes=*/300'000},
                      [this] { return now_; }};
};

TEST_F(SessionTableTest, ARepeatedOpenIsTheSameOpen) {
  const std::string id = IdOf(kAda, 'a', "train");
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(IdOf(kAda, 'a', "train"), id);
  EXPECT_NE(IdOf(kAda, 'b'), id);
  EXPECT_EQ(Open(kAda, 'a', "test").status().code(),
            absl::StatusCode::kInvalidArgument);
  // Open ids of different clients are independent.
  EXPECT_NE(IdOf(kBob, 'a'), id);
  EXPECT_EQ(table_.sessions(), 3);
  EXPECT_EQ(Open(kAda, 'c', "train").status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(SessionTableTest, OthersSeeNothing) {
  const std::string id = IdOf(kAda, 'a', "train");
  EXPECT_TRUE(table_.Find(kAda, id).ok());
  EXPECT_TRUE(table_.FindByName(kAda, "train").ok());
  const absl::Status theirs = table_.Find(kBob, id).status();
  EXPECT_EQ(theirs.code(), absl::StatusCode::kNotFound);
  // The error is the same for each cause.
  EXPECT_EQ(theirs, table_.Find(kAda, std::string(16, '?')).status());
  EXPECT_EQ(theirs, table_.FindByName(kBob, "train").status());
  EXPECT_EQ(theirs, table_.Find(kHost, id).status());
  EXPECT_EQ(theirs, Close(kBob, id));
  EXPECT_FALSE(table_.Find(kBob, id, SessionTable::Right::kRead).ok());
  EXPECT_TRUE(
      table_.Find({"reader", true, false}, id, SessionTable::Right::kRead)
          .ok());
  EXPECT_EQ(table_.Find({"reader", true, false}, id).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(table_.List(kBob, false).size(), 0u);
  EXPECT_EQ(table_.List(kAdmin, true).size(), 1u);
  EXPECT_TRUE(Close(kAdmin, id).ok());
  EXPECT_EQ(theirs, table_.Find(kAda, id).status());
}

TEST_F(SessionTableTest, WithoutIdentitiesTheIdIsTheKey) {
  const std::string id = IdOf(kHost, 'a', "train");
  EXPECT_TRUE(table_.Find({"ipv4:10.0.0.2", false, true}, id).ok());
  EXPECT_FALSE(table_.FindByName(kHost, "train").ok());
}

TEST_F(SessionTableTest, LeasesEndUnlessACallUsesThem) {
  const std::string id = IdOf(kAda, 'a', "train");
  Pass(absl::Seconds(59));
  EXPECT_TRUE(table_.Find(kAda, id).ok());  // Renews the lease.
  {
    const SessionUse use = *table_.Find(kAda, id);
    Pass(absl::Hours(1));
    EXPECT_TRUE(table_.Find(kAda, id).ok());
  }
  Pass(absl::Seconds(59));
  EXPECT_TRUE(table_.Find(kAda, id).ok());
  // No one finds it, even before Expire removes it.
  now_ += absl::Seconds(60);
  EXPECT_FALSE(table_.Find(kAda, id).ok());
  Pass(absl::ZeroDuration());
  EXPECT_EQ(table_.sessions(), 0);
  EXPECT_EQ(table_.expired(), 1);
  EXPECT_EQ(memory_->budget.used_bytes(), 0);
  // The name is free again.
  EXPECT_TRUE(Open(kAda, 'b', "train").ok());
}

TEST_F(SessionTableTest, ReadersDoNotRenewTheLease) {
  const SessionCaller reader{"reader", true, false};
  const std::string id = IdOf(kAda, 'a');
  const std::string other = IdOf(kAda, 'b');
  Pass(absl::Seconds(40));
  EXPECT_TRUE(table_.Find(reader, id, SessionTable::Right::kRead).ok());
  EXPECT_TRUE(
      table_.Find(kAda, id, SessionTable::Right::kRead, /*renews=*/false).ok());
  EXPECT_TRUE(
      table_.Find(kAda, id, SessionTable::Right::kAll, /*renews=*/false).ok());
  EXPECT_TRUE(table_.Find(kAda, other, SessionTable::Right::kRead)
                  .ok());  // Renews the lease.
  {
    // Readers also don't hold it while they run.
    const SessionUse use = *table_.Find(reader, id, SessionTable::Right::kRead);
    Pass(absl::Seconds(40));
    EXPECT_EQ(use->state()->number, 0);
  }
  EXPECT_FALSE(table_.Find(reader, id, SessionTable::Right::kRead).ok());
  EXPECT_FALSE(table_.Find(kAda, id).ok());
  EXPECT_TRUE(table_.Find(kAda, other).ok());
  EXPECT_EQ(table_.expired(), 1);
}

TEST_F(SessionTableTest, TellsWhoKeepsMost) {
  const SessionUse small = *Open(kAda, 'a');
  const SessionUse empty = *Open(kAda, 'b');
  const SessionUse large = *Open(kBob, 'c');
  EXPECT_TRUE(Put(small, 1, 100).ok());
  EXPECT_TRUE(Put(large, 1, 50'000).ok());
  const auto uses = table_.ClientUses();
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].client, "bob");
  const auto counted = [](const SessionUse& use) {
    return use->info().kept_bytes + use->info().reply_bytes;
  };
  EXPECT_EQ(uses[0].kept_bytes, counted(large));
  EXPECT_EQ(uses[1].client, "ada");
  EXPECT_EQ(uses[1].sessions, 2);
  EXPECT_EQ(uses[1].kept_bytes, counted(small));
  EXPECT_TRUE(Close(kBob, large->settings().id).ok());
  EXPECT_EQ(table_.ClientUses().size(), 1u);
}

TEST_F(SessionTableTest, CountsSessionsAndBytesOfAClient) {
  const SessionUse first = *Open(kAda, 'a');
  const SessionUse second = *Open(kAda, 'b');
  EXPECT_TRUE(Put(first, 1, 50'000).ok());  // 200,000 bytes and rounding.
  // The quota counts the bytes kept after a change, not the replaced ones.
  EXPECT_TRUE(Put(first, 2, 50'000).ok());
  const absl::Status full = Put(second, 1, 50'000);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(full)->reason, Reason::kLimitExceeded);
  EXPECT_TRUE(Close(kAda, first->settings().id).ok());
  absl::Status status = absl::UnknownError("not told");
  second->Arrive(
      {2, 1, std::string(16, 'd'), 0}, now_,
      {absl::InfiniteFuture(),
       [&](const ChangeOrder::Decision& decision) { status = decision.why; }});
  EXPECT_TRUE(status.ok()) << status;
  second->Fail(absl::CancelledError("enough"), now_).IgnoreError();
  const SessionUse third = *Open(kAda, 'c');
  const SessionUse fourth = *Open(kAda, 'd');
  EXPECT_EQ(Open(kAda, 'e').status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Open(kBob, 'e').ok());
}

TEST_F(SessionTableTest, AFailedChangeGivesBackWhatItWasPromised) {
  const SessionUse first = *Open(kAda, 'a');
  const SessionUse second = *Open(kAda, 'b');
  first->Arrive({1, 1, std::string(16, 'c'), 0}, now_,
                {absl::InfiniteFuture(),
                 [](const ChangeOrder::Decision& /*decision*/) {}});
  KeptWrites writes;
  writes.tensors["x"] = KeptTensor{{DataType::kF32, Layout::kNCX, {1, 50'000}},
                                   *table_.memory()->Take(200'000, nullptr),
                                   0};
  EXPECT_TRUE(first->Promise(writes, {}).ok());
  first->Fail(absl::CancelledError("enough"), now_).IgnoreError();
  EXPECT_TRUE(Put(second, 1, 50'000).ok());
  EXPECT_FALSE(first->Promise(writes, {}).ok());
}

TEST_F(SessionTableTest, KeepsNoMoreThanItsShare) {
  const SessionUse use = *Open(kBob, 'a');
  const int64_t empty = memory_->budget.used_bytes();
  const absl::Status never = Put(use, 1, 200'000);
  EXPECT_EQ(DetailOf(never)->reason, Reason::kLimitExceeded);
  EXPECT_EQ(memory_->budget.used_bytes(), empty);
}

TEST_F(SessionTableTest, AReadersStateOutlivesChanges) {
  const SessionUse use = *Open(kAda, 'a');
  EXPECT_TRUE(Put(use, 1, 4).ok());
  const std::shared_ptr<const KeptState> seen = use->state();
  EXPECT_TRUE(Put(use, 2, 8).ok());
  EXPECT_EQ(seen->number, 1);
  EXPECT_EQ(seen->tensors.at("x").bytes->size(), 16);
  EXPECT_EQ(use->state()->tensors.at("x").version, 2);
}

TEST_F(SessionTableTest, RefusesBadSettings) {
  const auto refused = [&](const SessionRequest& request) {
    return table_.Open(kAda, request).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  const std::string id(16, 'a');
  EXPECT_TRUE(refused({"short", "", {}}));
  for (const std::string name : {"a/b", "a\\b", "a\nb", "\x7f", "\xff"}) {
    EXPECT_TRUE(refused({id, name, {}})) << name;
  }
  EXPECT_TRUE(refused({id, std::string(10'240, 'n'), {}}));
  for (const absl::Duration lease :
       {absl::Nanoseconds(1), absl::Hours(24 * 365 * 100),
        -absl::InfiniteDuration(), absl::InfiniteDuration()}) {
    EXPECT_TRUE(refused({id, "", {}, lease})) << lease;
  }
  EXPECT_TRUE(refused({id, "", {}, absl::Seconds(9), -1}));
  EXPECT_EQ(table_.Open(kAda, {id, "", {}, absl::Seconds(9), 0, true})
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(refused({id, "", std::vector<std::string>(65, "r")}));
  EXPECT_EQ(table_.sessions(), 0);
}

TEST_F(SessionTableTest, DigestsAreAClientsOwn) {
  DigestIndex& digests = *table_.digests();
  const TensorDescriptor tensor{DataType::kF32, Layout::kOIX, {1, 1, 2}};
  const std::string digest(32, 'd');
  {
    const KeptTensor kept{tensor, *table_.memory()->Take(8, nullptr), 0};
    digests.Add("ada", digest, kept);
    EXPECT_TRUE(digests.Find("ada", digest).has_value());
    EXPECT_FALSE(digests.Find("bob", digest).has_value());
  }
  EXPECT_FALSE(digests.Find("ada", digest).has_value());
}

TEST_F(SessionTableTest, ADigestStandsForBytesThatAnySessionKeeps) {
  DigestIndex& digests = *table_.digests();
  const TensorDescriptor tensor{DataType::kF32, Layout::kOIX, {1, 1, 2}};
  const std::string digest(32, 'd');
  const auto put = [&] {
    return digests.Add("ada", digest,
                       {tensor, *table_.memory()->Take(8, nullptr), 0});
  };
  std::optional<KeptTensor> first = put();
  std::optional<KeptTensor> second = put();
  // Both keep the same bytes, which count once.
  EXPECT_EQ(first->bytes, second->bytes);
  second.reset();
  EXPECT_TRUE(digests.Find("ada", digest).has_value());
  second = put();
  first.reset();
  EXPECT_TRUE(digests.Find("ada", digest).has_value());
}

TEST_F(SessionTableTest, WhoWasTakenOverClosesNothing) {
  const std::string id = IdOf(kAda, 'a');
  const SessionUse use = *table_.Find(kAda, id);
  EXPECT_EQ(*use->StartEpoch(), 2);
  EXPECT_EQ(*use->StartEpoch(/*held=*/2), 3);
  for (const absl::Status& refused :
       {Close(kAda, id, 1), use->StartEpoch(/*held=*/2).status()}) {
    EXPECT_EQ(DetailOf(refused)->reason, Reason::kTakenOver) << refused;
  }
  EXPECT_TRUE(table_.Find(kAda, id).ok());
  EXPECT_EQ(use->info().epoch, 3);
  EXPECT_TRUE(Close(kAda, id, 3).ok());
}

TEST_F(SessionTableTest, ASessionThatIsBeingClosedDoesNotExpire) {
  const SessionUse use = *Open(kAda, 'a');
  use->End(NoSuchSession());
  Pass(absl::Hours(1));
  EXPECT_EQ(table_.expired(), 0);
}

TEST_F(SessionTableTest, WhoResumesAClosedSessionIsToldAtOnce) {
  const SessionUse use = *Open(kAda, 'a');
  use->Arrive({1, 1, std::string(16, 'c'), 0}, now_,
              {absl::InfiniteFuture(),
               [](const ChangeOrder::Decision& /*decision*/) {}});
  use->End(NoSuchSession());
  absl::Status status;
  EXPECT_TRUE(use->StartEpoch().ok());
  use->AwaitSettled(
      [&](const ChangeOrder::Decision& decision) { status = decision.why; });
  EXPECT_EQ(status, NoSuchSession());
  use->Fail(absl::CancelledError("gone"), now_).IgnoreError();
}

TEST_F(SessionTableTest, AChangeFindsTheMemoryThatTheOneBeforeGaveUp) {
  const SessionUse use = *Open(kAda, 'a');
  ASSERT_TRUE(Put(use, 1, 100).ok());
  const std::weak_ptr<const KeptBytes> replaced =
      use->state()->tensors.at("x").bytes;
  bool has_started = false;
  use->Arrive({1, 2, std::string(16, 'd'), 0}, now_,
              {absl::InfiniteFuture(), [](const auto& /*decision*/) {}});
  use->Arrive({1, 3, std::string(16, 'e'), 0}, now_,
              {absl::InfiniteFuture(), [&](const auto& /*decision*/) {
                 has_started = true;
                 EXPECT_TRUE(replaced.expired());
               }});
  KeptWrites writes;
  writes.tensors["x"] = std::nullopt;
  ASSERT_TRUE(use->Promise(writes, {}).ok());
  ASSERT_TRUE(use->Commit(writes, std::make_shared<int>(0), now_).ok());
  EXPECT_TRUE(has_started);
}

}  // namespace
}  // namespace convgrad

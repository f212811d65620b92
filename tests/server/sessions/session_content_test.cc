// Tests where the content of a durable session is: in memory, on disk, or both.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/sessions/session_table.h"
#include "tests/server/sessions/no_archive.h"

namespace convgrad {
namespace {

const SessionCaller kAda{"ada", true, false};

// Records what it is asked for.
class Archive : public NoArchive {
 public:
  void Load(const std::shared_ptr<KeptSession>& session) override {
    loads.push_back(session);
  }
  void Forget(const std::shared_ptr<KeptSession>& /*session*/) override {
    ++forgets;
  }
  void Remove(const std::string& /*client*/, const std::string& hash,
              Done done) override {
    removed.push_back(hash);
    done(absl::OkStatus());
  }

  std::vector<std::shared_ptr<KeptSession>> loads;
  int forgets = 0;
  std::vector<std::string> removed;
};

class SessionContentTest : public ::testing::Test {
 protected:
  SessionContentTest() { table_.SetArchive(&archive_); }

  SessionUse Open(char open_id, const std::string& name = "") {
    SessionRequest request;
    request.open_id = std::string(16, open_id);
    request.name = name;
    request.lease = absl::Seconds(60);
    request.durable = true;
    absl::StatusOr<SessionUse> use = table_.Open(kAda, request);
    EXPECT_TRUE(use.ok()) << use.status();
    return *std::move(use);
  }

  // Commits change `sequence`, which writes these.
  void Change(const SessionUse& use, int64_t sequence, const KeptWrites& writes,
              int64_t epoch = 1) {
    use->Arrive(
        {epoch, sequence, std::string(16, 'c'), 0}, now_,
        {absl::InfiniteFuture(), [](const ChangeOrder::Decision& decision) {
           EXPECT_TRUE(decision.runs()) << decision.why;
         }});
    EXPECT_TRUE(use->Promise(writes, {}).ok());
    EXPECT_TRUE(use->Commit(writes, std::make_shared<int>(0), now_).ok());
  }
  KeptWrites TensorWrites() {
    const TensorDescriptor tensor{DataType::kF32, Layout::kNCX, {1, 100}};
    KeptWrites writes;
    writes.tensors["x"] =
        KeptTensor{tensor, *table_.memory()->Take(400, nullptr), 0};
    return writes;
  }
  KeptWrites TapeWrites() {
    auto tape = std::make_shared<KeptTape>();
    tape->bytes = *table_.memory()->Take(100, nullptr);
    tape->program = std::make_shared<const KeptProgram>();
    KeptWrites writes;
    writes.tapes["t"] = std::move(tape);
    return writes;
  }
  static KeptWrites NoTape() {
    KeptWrites writes;
    writes.tapes["t"] = nullptr;
    return writes;
  }
  int64_t CaptureOf(const SessionUse& use) {
    const auto capture = use->NewestCapture(now_);
    return capture ? capture->state->number : -1;
  }
  void MakeDurable(const SessionUse& use) {
    use->OnDurable(*use->NewestCapture(now_));
  }
  void Pass(absl::Duration time) {
    now_ += time;
    table_.Expire();
  }

  const std::shared_ptr<CallMemory> memory_ = std::make_shared<CallMemory>(
      1 << 20, 8, 0, [](const auto& task) { task(); });
  absl::Time now_ = absl::UnixEpoch();
  SessionTable table_{std::make_shared<KeptMemory>(memory_, 1 << 19),
                      {/*sessions=*/3, /*kept_bytes=*/300'000},
                      [this] { return now_; }};
  // It holds sessions, which end before their table.
  Archive archive_;
};

TEST_F(SessionContentTest, ANewSessionIsCapturedBeforeItsFirstChange) {
  const SessionUse use = Open('a');
  EXPECT_EQ(CaptureOf(use), 0);
  MakeDurable(use);
  EXPECT_EQ(CaptureOf(use), -1);
  EXPECT_EQ(use->changed_since(), absl::InfiniteFuture());
}

TEST_F(SessionContentTest, CapturesAreOfStatesWithoutTapes) {
  const SessionUse use = Open('a');
  MakeDurable(use);
  Change(use, 1, TensorWrites());
  EXPECT_EQ(CaptureOf(use), 1);
  Change(use, 2, TapeWrites());
  EXPECT_EQ(CaptureOf(use), 1);
  Change(use, 3, TensorWrites());
  EXPECT_EQ(CaptureOf(use), 1);
  EXPECT_EQ(use->NewestCapture(now_)->replies.size(), 1u);
  MakeDurable(use);
  EXPECT_EQ(CaptureOf(use), -1);
  EXPECT_EQ(use->durable_number(), 1);
  Change(use, 4, NoTape());
  EXPECT_EQ(CaptureOf(use), 4);
}

TEST_F(SessionContentTest, KnowsTheOldestChangeThatIsNotOnDisk) {
  const SessionUse use = Open('a');
  MakeDurable(use);
  now_ += absl::Seconds(1);
  Change(use, 1, TensorWrites());
  const absl::Time first = now_;
  now_ += absl::Seconds(1);
  const auto capture = use->NewestCapture(now_);
  Change(use, 2, TensorWrites());
  EXPECT_EQ(use->changed_since(), first);
  use->OnDurable(*capture);
  EXPECT_EQ(use->changed_since(), now_);
  MakeDurable(use);
  EXPECT_EQ(use->changed_since(), absl::InfiniteFuture());
}

TEST_F(SessionContentTest, AStateThatIsGoneBackToMayBeOnDiskAlready) {
  const SessionUse use = Open('a');
  KeptWrites step = TensorWrites();
  step.trainer_state = std::make_shared<const std::string>("after step 1");
  Change(use, 1, step);
  MakeDurable(use);
  Change(use, 2, TapeWrites());
  EXPECT_NE(use->changed_since(), absl::InfiniteFuture());
  use->DropTapes(*use->StartEpoch(), now_);
  EXPECT_EQ(use->info().number, 1);
  // Only the new epoch isn't on disk.
  EXPECT_EQ(use->changed_since(), now_);
  MakeDurable(use);
  EXPECT_EQ(use->changed_since(), absl::InfiniteFuture());
}

TEST_F(SessionContentTest, AnEarlierEpochDropsNothingOfALaterOne) {
  const SessionUse use = Open('a');
  const int64_t earlier = *use->StartEpoch();
  const int64_t later = *use->StartEpoch();
  Change(use, 1, TapeWrites(), later);
  use->DropTapes(earlier, now_);
  EXPECT_EQ(use->state()->tapes.size(), 1u);
  use->DropTapes(later, now_);
  EXPECT_TRUE(use->state()->tapes.empty());
}

TEST_F(SessionContentTest, AnOwnerKnowsThatItsEpochIsTakenOver) {
  const SessionUse use = Open('a');
  EXPECT_TRUE(use->CheckEpoch(1).ok());
  const int64_t later = *use->StartEpoch();
  EXPECT_EQ(DetailOf(use->CheckEpoch(1))->reason, Reason::kTakenOver);
  EXPECT_TRUE(use->CheckEpoch(later).ok());
}

TEST_F(SessionContentTest, WhoTookItOverIsCapturedAtOnce) {
  const SessionUse use = Open('a');
  Change(use, 1, TensorWrites());
  MakeDurable(use);
  EXPECT_EQ(CaptureOf(use), -1);
  const int64_t later = *use->StartEpoch(0, "a call");
  const auto capture = use->NewestCapture(now_);
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ(capture->epochs.first, later);
  EXPECT_EQ(capture->epochs.resumed_by, "a call");
  MakeDurable(use);
  EXPECT_EQ(CaptureOf(use), -1);
  // Going back keeps it.
  KeptWrites step = TensorWrites();
  step.trainer_state = std::make_shared<const std::string>("after step 1");
  Change(use, 2, step, later);
  Change(use, 3, TapeWrites(), later);
  use->DropTapes(*use->StartEpoch(later, "another"), now_);
  EXPECT_EQ(use->NewestCapture(now_)->epochs.first, later + 1);
  EXPECT_EQ(use->NewestCapture(now_)->epochs.resumed_by, "another");
}

TEST_F(SessionContentTest, TheLeaseFreesMemoryWhenEverythingIsOnDisk) {
  std::string id;
  {
    const SessionUse use = Open('a', "train");
    id = use->settings().id;
    Change(use, 1, TensorWrites());
  }
  Pass(absl::Seconds(61));
  EXPECT_GT(table_.memory()->used_bytes(), 0);
  EXPECT_EQ(table_.expired(), 0);
  {
    const auto sessions = table_.DurableSessions();
    sessions[0]->OnDurable(*sessions[0]->NewestCapture(now_));
  }
  Pass(absl::ZeroDuration());
  EXPECT_EQ(table_.memory()->used_bytes(), 0);
  EXPECT_EQ(table_.expired(), 1);
  EXPECT_EQ(archive_.forgets, 1);
  const std::vector<SessionInfo> list = table_.List(kAda, false);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_TRUE(list[0].on_disk);
  EXPECT_EQ(list[0].number, 1);
  EXPECT_EQ(list[0].tensors, 1);
  EXPECT_GT(table_.ClientUses()[0].kept_bytes, 400);
  // Its id and name still find it.
  EXPECT_TRUE(table_.Find(kAda, id).ok());
  EXPECT_TRUE(table_.FindByName(kAda, "train").ok());
}

TEST_F(SessionContentTest, CallsWaitForOneLoad) {
  SessionTable::StoredSession stored;
  stored.settings.id = std::string(16, 'i');
  stored.settings.client = "ada";
  stored.settings.owner = "ada";
  stored.settings.lease = absl::Seconds(60);
  stored.settings.open_id = std::string(16, 'o');
  stored.settings.durable = true;
  stored.number = 7;
  stored.epochs = {3, 2, ""};
  stored.settings.name = "a name\n";
  EXPECT_TRUE(absl::IsInvalidArgument(table_.AddStored(stored)));
  stored.settings.name = "";
  ASSERT_TRUE(table_.AddStored(stored).ok());
  const SessionUse use = *table_.Find(kAda, stored.settings.id);
  std::vector<absl::Status> told;
  const auto note = [&](const absl::Status& status) { told.push_back(status); };
  table_.AwaitContent(use.session(), note);
  table_.AwaitContent(use.session(), note);
  ASSERT_EQ(archive_.loads.size(), 1u);
  use->FailToRestore(absl::DataLossError("broken"));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].code(), absl::StatusCode::kDataLoss);
  // A later call tries again.
  table_.AwaitContent(use.session(), note);
  ASSERT_EQ(archive_.loads.size(), 2u);
  KeptState state;
  state.number = 7;
  SessionCapture content;
  content.state = std::make_shared<const KeptState>(state);
  content.epochs = {2, 2, ""};
  use->Restore(content, now_);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_TRUE(told[2].ok());
  EXPECT_GT(use->info().epoch, 3);
  EXPECT_EQ(DetailOf(use->CheckEpoch(1))->reason, Reason::kTakenOver);
  EXPECT_EQ(DetailOf(use->CheckEpoch(2))->reason, Reason::kRestored);
  EXPECT_EQ(CaptureOf(use), -1);
  table_.AwaitContent(use.session(), note);
  EXPECT_EQ(archive_.loads.size(), 2u);
  EXPECT_EQ(told.size(), 4u);
}

TEST_F(SessionContentTest, AClosedSessionHasNoCaptureAndLeavesTheDisk) {
  const SessionUse use = Open('a');
  Change(use, 1, TensorWrites());
  absl::Status closed = absl::UnknownError("not told");
  table_.Close(kAda, use->settings().id, /*held=*/0,
               [&](const absl::Status& status) { closed = status; });
  EXPECT_TRUE(closed.ok());
  EXPECT_EQ(CaptureOf(use), -1);
  EXPECT_EQ(archive_.removed,
            std::vector<std::string>{HashOf(use->settings().id)});
  EXPECT_EQ(table_.sessions(), 0);
}

TEST_F(SessionContentTest, AServerThatEndsWritesNothingBlank) {
  const SessionUse use = Open('a');
  Change(use, 1, TensorWrites());
  table_.EndAll(absl::UnavailableError("draining"));
  EXPECT_EQ(CaptureOf(use), -1);
  EXPECT_TRUE(archive_.removed.empty());
}

TEST_F(SessionContentTest, BrokenSessionsAreNamedAndClosedByAnAdmin) {
  const std::string id(16, 'b');
  table_.AddBroken(HashOf(id), absl::DataLossError("broken"));
  EXPECT_EQ(table_.Find(kAda, id).status().code(), absl::StatusCode::kDataLoss);
  absl::Status closed;
  const auto note = [&](const absl::Status& status) { closed = status; };
  table_.CloseByHandle(kAda, HandleOf(id), /*held=*/0, note);
  EXPECT_EQ(closed.code(), absl::StatusCode::kNotFound);
  table_.CloseByHandle({"root", true, true}, HandleOf(id), /*held=*/0, note);
  EXPECT_TRUE(closed.ok()) << closed;
  EXPECT_EQ(archive_.removed, std::vector<std::string>{HashOf(id)});
  EXPECT_EQ(table_.Find(kAda, id).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SessionContentTest, SnapshotsWithNamesCountInTheQuotaOfTheClient) {
  const SessionUse use = Open('a');
  EXPECT_TRUE(use->AddSnapshot("a", {1, 200'000}).ok());
  const absl::Status refused = use->AddSnapshot("b", {2, 200'000});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(use->info().snapshots.size(), 1);
  EXPECT_TRUE(use->AddSnapshot("a", {3, 299'000}).ok());
  EXPECT_EQ(use->info().snapshots.at("a").number, 3);
  use->SetSnapshots({});
  EXPECT_TRUE(use->AddSnapshot("b", {2, 299'000}).ok());
  use->End(absl::CancelledError("closed"));
  EXPECT_TRUE(Open('b')->AddSnapshot("b", {2, 299'000}).ok());
}

TEST_F(SessionContentTest, ASessionHas16SnapshotsWithNames) {
  const SessionUse use = Open('a');
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(use->AddSnapshot(std::to_string(i), {i, 1}).ok());
  }
  const absl::Status refused = use->AddSnapshot("one more", {16, 1});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(use->AddSnapshot("7", {16, 1}).ok());
}

TEST_F(SessionContentTest, TheNewestCaptureOnDiskIsASnapshot) {
  const SessionUse use = Open('a');
  Change(use, 1, TensorWrites());
  MakeDurable(use);
  EXPECT_EQ(use->durable_snapshot().number, 1);
  EXPECT_EQ(use->durable_snapshot().bytes, use->state()->totals.quota_bytes);
}

}  // namespace
}  // namespace convgrad

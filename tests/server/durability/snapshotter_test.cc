#include "server/durability/snapshotter.h"

#include <atomic>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/server/durability/running_snapshotter.h"
#include "tests/server/snapshots/failing_files.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

// Adds the sessions of `from`, as a server does that starts.
void AddStored(SnapshotStore* from, SessionTable* table) {
  const auto entries = from->List();
  ASSERT_TRUE(entries.ok()) << entries.status();
  for (const SnapshotEntry& entry : *entries) {
    ASSERT_TRUE(entry.status.ok()) << entry.status;
    ASSERT_TRUE(table->AddStored(StoredOf(entry)).ok());
  }
}

// Expects that `text` was logged `count` times since CaptureStdout.
void ExpectLogged(int count, const std::string& text) {
  const std::vector<std::string> parts =
      absl::StrSplit(testing::internal::GetCapturedStdout(), text);
  EXPECT_EQ(std::ssize(parts) - 1, count) << text;
}

TEST(Snapshotter, SavesWhatHasChanged) {
  MemoryFiles files;
  Running server(&files);
  const SessionUse use = server.Open('a');
  EXPECT_TRUE(server.Save(use).ok());
  EXPECT_TRUE(server.Save(use).ok());
  EXPECT_EQ(server.snapshotter.counts().written, 1);
  server.Change(use, server.WritesOf("w", 1));
  EXPECT_TRUE(server.Save(use).ok());
  EXPECT_EQ(use->durable_number(), 1);
  EXPECT_EQ(server.snapshotter.counts().written, 2);
  EXPECT_EQ(server.snapshotter.counts().bytes, 16);
}

TEST(Snapshotter, ClientsTakeTurns) {
  MemoryFiles files;
  Running server(&files);
  const SessionUse ada = server.Open('a');
  const SessionUse bob = server.Open('b', "", "bob");
  std::promise<void> all;
  std::string saved;
  server.snapshotter.Save(
      ada.session(), [&](const auto& /*status*/) { all.get_future().wait(); });
  for (const SessionUse* use : {&ada, &ada, &bob}) {
    server.snapshotter.Save(use->session(), [&, use](const auto& /*status*/) {
      saved += (*use)->settings().client + " ";
    });
  }
  all.set_value();
  EXPECT_TRUE(server.Save(ada).ok());
  EXPECT_EQ(saved, "bob ada ada ");
}

TEST(Snapshotter, ANewServerRestoresInALaterEpoch) {
  MemoryFiles files(/*locks=*/false);
  std::string id;
  int64_t epoch = 0;
  {
    Running server(&files);
    const SessionUse use = server.Open('a');
    id = use->settings().id;
    server.Change(use, server.WritesOf("w", 2));
    EXPECT_TRUE(server.snapshotter.SaveAll());
    epoch = *use->StartEpoch();
    // Although nothing else has changed.
    EXPECT_TRUE(server.Save(use).ok());
  }
  Running next(&files);
  AddStored(next.store.get(), &next.table);
  const SessionUse use = *next.table.Find(kAda, id);
  absl::Status ready = absl::UnknownError("not told");
  next.table.AwaitContent(use.session(),
                          [&](const absl::Status& told) { ready = told; });
  ASSERT_TRUE(ready.ok()) << ready;
  EXPECT_EQ(use->state()->number, 1);
  EXPECT_EQ(StoredTable::ValueOf(*use->state(), "w"), 2);
  EXPECT_GT(use->info().epoch, epoch);
  EXPECT_EQ(DetailOf(use->CheckEpoch(epoch - 1))->reason, Reason::kTakenOver);
  EXPECT_EQ(DetailOf(use->CheckEpoch(epoch))->reason, Reason::kRestored);
  EXPECT_TRUE(use->StartEpoch(epoch).ok());
  next.Change(use, next.WritesOf("w", 3));
  EXPECT_TRUE(next.Save(use).ok());
  EXPECT_EQ(use->durable_number(), 2);
}

TEST(Snapshotter, AFailureIsToldAndTriedAgain) {
  MemoryFiles memory_files;
  std::atomic<bool> is_full = false;
  FailingFiles files(
      &memory_files, [&](int64_t /*call*/, const std::string& name) {
        return is_full && name == "write" ? Fault::kNoSpace : Fault::kNone;
      });
  Running server(&files);
  const SessionUse use = server.Open('a');
  EXPECT_TRUE(server.Save(use).ok());
  is_full = true;
  server.Change(use, server.WritesOf("w", 1));
  testing::internal::CaptureStdout();
  const absl::Status failed = server.Save(use);
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(use->durable_number(), 0);
  EXPECT_LT(use->changed_since(), absl::InfiniteFuture());
  EXPECT_FALSE(server.snapshotter.SaveAll());
  EXPECT_EQ(server.snapshotter.counts().failed, 2);
  ExpectLogged(1, "isn't on disk");
  // The session goes on.
  server.Change(use, server.WritesOf("w", 2));
  is_full = false;
  EXPECT_TRUE(server.Save(use).ok());
  EXPECT_EQ(use->durable_number(), 2);
}

TEST(Snapshotter, AnEpochThatFailedToBeSavedIsTriedAgain) {
  MemoryFiles memory_files;
  std::atomic<bool> is_full = false;
  FailingFiles files(
      &memory_files, [&](int64_t /*call*/, const std::string& name) {
        return is_full && name == "write" ? Fault::kNoSpace : Fault::kNone;
      });
  Running server(&files, absl::Milliseconds(1));
  const SessionUse use = server.Open('a');
  EXPECT_TRUE(server.Save(use).ok());
  is_full = true;
  use->DropTapes(*use->StartEpoch(), server.table.now());
  EXPECT_FALSE(server.Save(use).ok());
  is_full = false;
  // It ends only if the snapshotter writes by itself.
  while (use->NewestCapture(server.table.now())) std::this_thread::yield();
  EXPECT_EQ(use->changed_since(), absl::InfiniteFuture());
}

TEST(Snapshotter, TheIntervalSavesWithoutBeingAsked) {
  MemoryFiles files;
  Running server(&files, absl::Milliseconds(1));
  const SessionUse use = server.Open('a');
  server.Change(use, server.WritesOf("w", 1));
  // It ends only if the snapshotter writes by itself.
  while (use->durable_number() < 1) std::this_thread::yield();
}

TEST(Snapshotter, SavesWithoutAPauseDoNotStopTheOthers) {
  MemoryFiles files;
  Running server(&files, absl::Milliseconds(1));
  const SessionUse busy = server.Open('a');
  const SessionUse other = server.Open('b');
  std::atomic<bool> is_over = false;
  std::function<void(const absl::Status&)> save_again =
      [&](const absl::Status& /*saved*/) {
        if (!is_over) server.snapshotter.Save(busy.session(), save_again);
      };
  // Two at a time, so that a task always waits.
  save_again(absl::OkStatus());
  save_again(absl::OkStatus());
  server.Change(other, server.WritesOf("w", 1));
  while (other->durable_number() < 1) std::this_thread::yield();
  is_over = true;
  EXPECT_TRUE(server.snapshotter.SaveAll());
}

TEST(Snapshotter, DoesWhatItWasAskedForBeforeItEnds) {
  MemoryFiles files(/*locks=*/false);
  int saved = 0;
  {
    Running server(&files);
    const SessionUse use = server.Open('a');
    for (int i = 0; i < 3; ++i) {
      server.snapshotter.Save(use.session(), [&](const absl::Status& status) {
        if (status.ok()) ++saved;
      });
    }
  }
  EXPECT_EQ(saved, 3);
}

TEST(Snapshotter, KeepsTheNewestStateUnderAName) {
  MemoryFiles files(/*locks=*/false);
  std::string id;
  {
    Running server(&files);
    const SessionUse use = server.Open('a');
    id = use->settings().id;
    server.Change(use, server.WritesOf("w", 1));
    EXPECT_TRUE(server.Keep(use, "best").ok());
    EXPECT_EQ(use->durable_number(), 1);
    server.Change(use, server.WritesOf("w", 2));
    EXPECT_TRUE(server.snapshotter.SaveAll());
    EXPECT_EQ(*server.Named(use, "best"), 1);
    EXPECT_EQ(server.Named(use, "other").status().code(),
              absl::StatusCode::kNotFound);
  }
  Running next(&files);
  AddStored(next.store.get(), &next.table);
  const SessionUse use = *next.table.Find(kAda, id);
  next.table.AwaitContent(use.session(), [](const absl::Status& told) {
    EXPECT_TRUE(told.ok()) << told;
  });
  EXPECT_EQ(use->info().snapshots.at("best").number, 1);
  EXPECT_EQ(*next.Named(use, "best"), 1);
  EXPECT_TRUE(next.Drop(use, "best").ok());
  EXPECT_TRUE(next.Drop(use, "best").ok());
  EXPECT_TRUE(use->info().snapshots.empty());
}

// Changes that aren't on disk may have restored the snapshot.
TEST(Snapshotter, SavesBeforeADrop) {
  MemoryFiles memory_files;
  std::atomic<bool> is_full = false;
  FailingFiles files(
      &memory_files, [&](int64_t /*call*/, const std::string& name) {
        return is_full && name == "write" ? Fault::kNoSpace : Fault::kNone;
      });
  Running server(&files);
  const SessionUse use = server.Open('a');
  server.Change(use, server.WritesOf("w", 1));
  EXPECT_TRUE(server.Keep(use, "best").ok());
  server.Change(use, server.WritesOf("w", 2));
  is_full = true;
  EXPECT_EQ(server.Drop(use, "best").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(server.Keep(use, "other").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(*server.Named(use, "best"), 1);
  EXPECT_EQ(use->info().snapshots.size(), 1);
  is_full = false;
  EXPECT_TRUE(server.Drop(use, "best").ok());
  EXPECT_EQ(use->durable_number(), 2);
}

TEST(Snapshotter, ASnapshotThatIsNotKeptLeavesTheNameAsItWas) {
  MemoryFiles memory_files;
  std::atomic<bool> is_broken = false;
  FailingFiles files(
      &memory_files, [&](int64_t /*call*/, const std::string& name) {
        return is_broken && name == "create" ? Fault::kError : Fault::kNone;
      });
  Running server(&files);
  const SessionUse use = server.Open('a');
  server.Change(use, server.WritesOf("w", 1));
  EXPECT_TRUE(server.Keep(use, "best").ok());
  server.Change(use, server.WritesOf("w", 2));
  EXPECT_TRUE(server.Save(use).ok());
  is_broken = true;
  testing::internal::CaptureStdout();
  EXPECT_EQ(server.Keep(use, "best").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(server.Keep(use, "best").code(), absl::StatusCode::kInternal);
  ExpectLogged(1, "isn't kept");
  EXPECT_EQ(use->info().snapshots.at("best").number, 1);
  EXPECT_EQ(*server.Named(use, "best"), 1);
}

TEST(Snapshotter, LacksOfMemoryAreNotLogged) {
  MemoryFiles files;
  Running server(&files);
  const SessionUse use = server.Open('a');
  server.Change(use, server.WritesOf("w", 1));
  EXPECT_TRUE(server.Keep(use, "best").ok());
  std::vector<KeptWrites> all;
  while (server.table.memory()->Take(16, nullptr).ok()) {
    all.push_back(server.WritesOf("more", 1));
  }
  testing::internal::CaptureStdout();
  EXPECT_TRUE(absl::IsResourceExhausted(server.Named(use, "best").status()));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Snapshotter, ADamagedSnapshotWithANameIsItsOwnError) {
  MemoryFiles files;
  Running server(&files);
  const SessionUse use = server.Open('a');
  server.Change(use, server.WritesOf("w", 1));
  EXPECT_TRUE(server.Keep(use, "best").ok());
  for (const auto& [path, content] : files.Contents()) {
    if (path.find("named-best") != std::string::npos) files.Put(path, "?");
  }
  const absl::Status status = server.Named(use, "best").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DetailOf(status)->field, "name");
  EXPECT_EQ(StoredTable::ValueOf(*use->state(), "w"), 1);
}

}  // namespace
}  // namespace convgrad

// Tests that closed sessions leave the disk.
#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/server/durability/running_snapshotter.h"
#include "tests/server/snapshots/failing_files.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

TEST(SnapshotterRemoval, ARemovedSessionIsNotWrittenAgain) {
  MemoryFiles files;
  Running server(&files);
  const SessionUse use = server.Open('a');
  EXPECT_TRUE(server.Save(use).ok());
  EXPECT_EQ(server.store->List()->size(), 1u);
  server.Change(use, server.WritesOf("w", 1));
  EXPECT_TRUE(server.Close(use).ok());
  EXPECT_TRUE(server.Save(use).ok());
  EXPECT_TRUE(server.store->List()->empty());
}

TEST(SnapshotterRemoval, TriesAgainToRemoveWhatTheDiskKept) {
  MemoryFiles memory_files;
  std::atomic<bool> fails = false;
  std::atomic<bool> is_removed = false;
  FailingFiles files(&memory_files, [&](int64_t /*call*/, const auto& name) {
    if (name == "rmdir") is_removed = true;
    return fails && name == "unlink" ? Fault::kError : Fault::kNone;
  });
  Running server(&files, absl::Milliseconds(1));
  const SessionUse use = server.Open('a');
  EXPECT_TRUE(server.Save(use).ok());
  fails = true;
  EXPECT_EQ(server.Close(use).code(), absl::StatusCode::kInternal);
  fails = false;
  while (!is_removed) std::this_thread::yield();
}

TEST(SnapshotterRemoval, RemovesAfterWhatItWasAskedForBefore) {
  MemoryFiles files;
  Running server(&files);
  const SessionUse use = server.Open('a');
  EXPECT_TRUE(server.Save(use).ok());
  std::promise<void> all;
  std::promise<absl::Status> closed;
  bool is_saved = false;
  server.snapshotter.Save(
      use.session(), [&](const auto& /*status*/) { all.get_future().wait(); });
  server.snapshotter.Save(use.session(),
                          [&](const auto& /*status*/) { is_saved = true; });
  server.table.Close(kAda, use->settings().id, /*held=*/0,
                     [&](const absl::Status& status) {
                       EXPECT_TRUE(is_saved);
                       closed.set_value(status);
                     });
  all.set_value();
  EXPECT_TRUE(closed.get_future().get().ok());
}

TEST(SnapshotterRemoval, AClosedSessionHasNoNamesAndIsNotRead) {
  MemoryFiles memory_files;
  FailingFiles files(&memory_files, [](int64_t /*call*/, const auto& /*name*/) {
    return Fault::kNone;
  });
  Running server(&files);
  const SessionUse use = server.Open('a');
  EXPECT_TRUE(server.Save(use).ok());
  EXPECT_TRUE(server.Close(use).ok());
  EXPECT_EQ(server.Keep(use, "first"), NoSuchSession());
  EXPECT_EQ(server.Drop(use, "first"), NoSuchSession());
  const int64_t calls = files.calls();
  EXPECT_EQ(server.Named(use, "first").status(), NoSuchSession());
  server.snapshotter.Load(use.session());
  EXPECT_EQ(files.calls(), calls);
}

}  // namespace
}  // namespace convgrad

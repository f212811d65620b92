// Replays what a crash of the machine may leave on the disk at each moment, as
// "All File Systems Are Not Created Equal" (OSDI 2014) does.
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/snapshots/snapshot_store.h"
#include "tests/server/snapshots/images.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

using testing::IsEmpty;

// The number that is durable from an operation on; 0 means none.
struct Milestone {
  size_t operations;
  int64_t durable;
  int64_t fencing_number;
};

struct History {
  std::vector<FileOperation> operations;
  std::vector<Milestone> milestones;
};

const std::string& Key() {
  static const auto& key = *new std::string(SessionKeyOf(IdOf(0)));
  return key;
}

// Returns an image with a tensor of several blocks, which changes.
SessionImage ImageWithBlocks(int64_t number) {
  SessionImage image = ImageOf(number);
  image.tensors.insert(image.tensors.begin(), VectorOf("buffer", 9000, number));
  return image;
}

// Changes all tensors but the last one.
SessionImage NextImage(const SessionImage& before, int64_t number) {
  SessionImage image = ImageWithBlocks(number);
  if (!before.tensors.empty()) image.tensors.back() = before.tensors.back();
  return image;
}

// Runs two servers: the first writes numbers 1 to 4, the second 5 and 6.
const History& SomeHistory() {
  static const History& history = *[] {
    auto* const made = new History;
    MemoryFiles files;
    // The disk, in which the server makes its folder "s".
    EXPECT_TRUE(files.CreateFolder("d").ok());
    SessionImage image;
    const auto reached = [&](int64_t durable, int64_t fencing_number) {
      made->milestones.push_back(
          {files.operations().size(), durable, fencing_number});
    };
    reached(0, 0);
    for (const int64_t server : {1, 2}) {
      auto store = SnapshotStore::Open("d/s", &files);
      EXPECT_TRUE(store.ok()) << store.status();
      const int64_t last = server == 1 ? 0 : 4;
      reached(last, server);
      if (server == 2) {
        image = std::move((*store)->Load(Key(), AllocateForTest)->image);
      }
      for (int64_t number = last + 1; number <= 2 * server + 2; ++number) {
        image = NextImage(image, number);
        EXPECT_TRUE((*store)->Write(image).ok());
        reached(number, server);
      }
    }
    made->operations = files.operations();
    return made;
  }();
  return history;
}

// Checks what a server finds after a crash, and that it can go on.
void CheckRecovery(MemoryFiles* files, const Milestone& before,
                   int64_t last_number) {
  EXPECT_TRUE(files->CreateFolder("d").ok());  // The disk is always there.
  const auto store = SnapshotStore::Open("d/s", files);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_GT((*store)->fencing_number(), before.fencing_number);
  const auto loaded = (*store)->Load(Key(), AllocateForTest);
  int64_t number = 0;
  if (loaded.ok()) {
    number = loaded->image.head.number();
    EXPECT_THAT(loaded->broken, IsEmpty());
    EXPECT_EQ(TextOf(loaded->image), TextOf(ImageWithBlocks(number)));
  } else {
    ASSERT_TRUE(absl::IsNotFound(loaded.status())) << loaded.status();
  }
  EXPECT_GE(number, before.durable);
  EXPECT_LE(number, last_number);
  const absl::Status written = (*store)->Write(ImageWithBlocks(number + 1));
  ASSERT_TRUE(written.ok()) << written;
  const auto again = (*store)->Load(Key(), AllocateForTest);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(TextOf(again->image), TextOf(ImageWithBlocks(number + 1)));
  const auto names = files->List("d/s/sessions/" + Key());
  EXPECT_LE(names->size(), 6) << "something was left behind";
}

// Calls `check` with the files after a crash at each operation.
template <typename Keeps>
void ForEachCrash(const Keeps& keeps) {
  const History& history = SomeHistory();
  auto milestone = history.milestones.begin();
  for (size_t count = 0; count <= history.operations.size(); ++count) {
    while (milestone + 1 != history.milestones.end() &&
           (milestone + 1)->operations <= count) {
      ++milestone;
    }
    const std::vector<FileOperation> done(history.operations.begin(),
                                          history.operations.begin() + count);
    SCOPED_TRACE("crash after " + std::to_string(count) + " operations");
    const auto files = MemoryFiles::AfterCrash(done, keeps);
    ASSERT_NO_FATAL_FAILURE(
        CheckRecovery(files.get(), *milestone, milestone->durable + 1));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(SnapshotCrashTest, LosesEverythingThatIsNotSynced) {
  ForEachCrash([] { return false; });
}

TEST(SnapshotCrashTest, LosesNothing) {
  ForEachCrash([] { return true; });
}

TEST(SnapshotCrashTest, LosesEachChangeAlone) {
  for (int lost = 0; lost < 24; ++lost) {
    // Counts on from crash to crash, so that each is lost at some moment.
    int change = 0;
    ForEachCrash([&] { return change++ % 24 != lost; });
  }
}

TEST(SnapshotCrashTest, KeepsEachChangeAlone) {
  for (int kept = 0; kept < 24; ++kept) {
    int change = 0;
    ForEachCrash([&] { return change++ % 24 == kept; });
  }
}

TEST(SnapshotCrashTest, LosesAnything) {
  std::mt19937 random(35);
  for (int round = 0; round < 100; ++round) {
    ForEachCrash([&] { return random() % 2 == 0; });
    if (HasFailure()) return;
  }
}

TEST(SnapshotCrashTest, HasBlocksAndBarriersToTry) {
  size_t blocks = 0, renames = 0;
  for (const FileOperation& operation : SomeHistory().operations) {
    blocks += operation.bytes.size() / 4096;
    renames += operation.kind == FileOperation::Kind::kRename ? 1 : 0;
  }
  EXPECT_GT(blocks, 10);
  EXPECT_EQ(renames, 8);  // Six manifests and two fencing numbers.
}

}  // namespace
}  // namespace convgrad

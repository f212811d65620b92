#include "server/snapshots/snapshot_store.h"

#include <sys/mman.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/sha256.h"
#include "server/snapshots/manifest.pb.h"
#include "server/snapshots/session_files.h"
#include "tests/server/snapshots/images.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kMiB = int64_t{1} << 20;

class SnapshotStoreTest : public testing::Test {
 protected:
  SnapshotStoreTest() { Restart(); }

  void Restart() {
    store_.reset();
    auto store = SnapshotStore::Open("s", &files_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  absl::StatusOr<LoadedSnapshot> Load(int64_t session = 0) {
    return store_->Load(SessionKeyOf(IdOf(session)), AllocateForTest);
  }
  void ExpectLoads(const SessionImage& image) {
    const auto loaded = Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_THAT(loaded->broken, IsEmpty());
    EXPECT_EQ(TextOf(loaded->image), TextOf(image));
  }
  static std::string FolderOf(int64_t session = 0) {
    return "s/sessions/" + SessionKeyOf(IdOf(session));
  }
  std::vector<std::string> Names() {
    return files_.List(FolderOf()).value_or(std::vector<std::string>());
  }
  size_t Creations() const {
    size_t count = 0;
    for (const FileOperation& operation : files_.operations()) {
      count += operation.kind == FileOperation::Kind::kCreate ? 1 : 0;
    }
    return count;
  }

  MemoryFiles files_;
  std::unique_ptr<SnapshotStore> store_;
};

TEST_F(SnapshotStoreTest, LoadsWhatItWrote) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  ExpectLoads(ImageOf(5));
  Restart();
  ExpectLoads(ImageOf(5));
  EXPECT_EQ(Load()->generation, 1);
}

TEST_F(SnapshotStoreTest, WorksOnTheSystemsFiles) {
  store_.reset();
  const std::string folder = testing::TempDir() + "/state";
  {
    const auto store = SnapshotStore::Open(folder, PosixFiles());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE(absl::IsFailedPrecondition(
        SnapshotStore::Open(folder, PosixFiles()).status()));
    ASSERT_TRUE((*store)->Write(ImageOf(5)).ok());
    ASSERT_TRUE((*store)->Write(ImageOf(6)).ok());
  }
  const auto store = SnapshotStore::Open(folder, PosixFiles());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->fencing_number(), 2);
  const auto loaded = (*store)->Load(SessionKeyOf(IdOf(0)), AllocateForTest);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(TextOf(loaded->image), TextOf(ImageOf(6)));
  EXPECT_TRUE((*store)->Remove(SessionKeyOf(IdOf(0))).ok());
  EXPECT_THAT(*(*store)->List(), IsEmpty());
}

TEST_F(SnapshotStoreTest, LoadsAnImageWithoutItems) {
  SessionImage image;
  image.head.set_id(IdOf(0));
  ASSERT_TRUE(store_->Write(image).ok());
  ExpectLoads(image);
}

TEST_F(SnapshotStoreTest, HasNoSnapshotBeforeTheFirstWrite) {
  EXPECT_TRUE(absl::IsNotFound(Load().status()));
  EXPECT_TRUE(
      absl::IsNotFound(store_->Load("../lock", AllocateForTest).status()));
  EXPECT_THAT(*store_->List(), IsEmpty());
}

TEST_F(SnapshotStoreTest, KeepsTwoGenerations) {
  for (int64_t number = 1; number <= 6; ++number) {
    ASSERT_TRUE(store_->Write(ImageOf(number)).ok());
    ExpectLoads(ImageOf(number));
    EXPECT_THAT(Names(), SizeIs(number == 1 ? 2 : 4));
  }
  Restart();
  ExpectLoads(ImageOf(6));
  ASSERT_TRUE(store_->Write(ImageOf(7)).ok());
  EXPECT_THAT(Names(), SizeIs(4));
  EXPECT_THAT(Names(), testing::IsSupersetOf({"manifest-6", "manifest-7"}));
}

TEST_F(SnapshotStoreTest, RefusesToReplaceWhatWasNotLoaded) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  Restart();
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->Write(ImageOf(6))));
  store_->FolderOf(SessionKeyOf(IdOf(0)))->Forget();
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->Write(ImageOf(6))));
  ExpectLoads(ImageOf(5));
  EXPECT_TRUE(store_->Write(ImageOf(6)).ok());
  store_->FolderOf(SessionKeyOf(IdOf(0)))->Forget();
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->Write(ImageOf(7))));
}

TEST_F(SnapshotStoreTest, RefusesAnInconsistentImage) {
  SessionImage image = ImageOf(5);
  image.tensors[0].name = "a/b";
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Write(image)));
  EXPECT_THAT(Names(), IsEmpty());
}

// The bytes can't even be read.
TEST_F(SnapshotStoreTest, ReadsUnchangedBytesOnce) {
  const auto size = static_cast<size_t>(2 * kMiB);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  SessionImage image = ImageOf(5);
  ImageTensor frozen = VectorOf("large", 2 * kMiB, 0);
  frozen.data = {std::make_shared<int>(1),
                 {static_cast<const std::byte*>(memory), size}};
  image.tensors = {frozen};
  ASSERT_TRUE(store_->Write(image).ok());
  ASSERT_EQ(mprotect(memory, size, PROT_NONE), 0);
  image.tensors.push_back(VectorOf("new", 4 * kMiB, 1));
  const size_t before = Creations();
  EXPECT_TRUE(store_->Write(image).ok());
  EXPECT_EQ(Creations() - before, 2) << "the new part and the manifest";
  munmap(memory, size);
}

TEST_F(SnapshotStoreTest, WritesNoEqualPartTwice) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  const size_t before = Creations();
  SessionImage image = ImageOf(5);  // Other owners.
  image.head.set_number(6);
  ASSERT_TRUE(store_->Write(image).ok());
  EXPECT_EQ(Creations() - before, 1) << "only a manifest";
  ExpectLoads(image);
  ASSERT_TRUE(store_->Write(ImageOf(7)).ok());
  ASSERT_TRUE(store_->Write(image).ok());
  ExpectLoads(image);
}

TEST_F(SnapshotStoreTest, KnowsAfterLoadingWhatIsOnTheDisk) {
  SessionImage image = ImageOf(5);
  image.tensors.push_back(VectorOf("large", 5 * kMiB, 1));
  ASSERT_TRUE(store_->Write(image).ok());
  Restart();
  auto loaded = Load();
  ASSERT_TRUE(loaded.ok());
  const size_t before = Creations();
  loaded->image.head.set_number(6);
  ASSERT_TRUE(store_->Write(loaded->image).ok());
  EXPECT_EQ(Creations() - before, 1) << "only a manifest";
}

TEST_F(SnapshotStoreTest, AllocatesAllBeforeItReads) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  int64_t bytes = 0, calls = 0;
  const auto allocate = [&](int64_t size) -> absl::StatusOr<WritableBytes> {
    bytes += size;
    if (++calls == 8) return absl::ResourceExhaustedError("no memory now");
    return AllocateForTest(size);
  };
  const std::string key = SessionKeyOf(IdOf(0));
  const auto loaded = store_->Load(key, allocate);
  EXPECT_EQ(loaded.status(), absl::ResourceExhaustedError("no memory now"));
  EXPECT_EQ(bytes, 2 * 1152 + 10 + 8 + 9000 + 11 + 4);
}

TEST_F(SnapshotStoreTest, DoesNotTakeALackOfMemoryForABrokenGeneration) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  ASSERT_TRUE(store_->Write(ImageOf(6)).ok());
  int64_t calls = 0;
  const auto loaded = store_->Load(
      SessionKeyOf(IdOf(0)), [&](int64_t) -> absl::StatusOr<WritableBytes> {
        ++calls;
        return absl::DataLossError("whatever");
      });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(loaded.status(), absl::DataLossError("whatever"));
}

TEST_F(SnapshotStoreTest, ListsSessions) {
  ASSERT_TRUE(store_->Write(ImageOf(5, 1)).ok());
  ASSERT_TRUE(store_->Write(ImageOf(6, 1)).ok());
  ASSERT_TRUE(store_->Write(ImageOf(7, 2)).ok());
  Restart();
  files_.Put(FolderOf(2) + "/manifest-1", "broken");
  ASSERT_TRUE(files_.CreateFolder("s/sessions/other").ok());
  const auto entries = store_->List();
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2);
  for (const SnapshotEntry& entry : *entries) {
    if (entry.key == SessionKeyOf(IdOf(2))) {
      EXPECT_TRUE(IsBroken(entry.status)) << entry.status;
      continue;
    }
    ASSERT_TRUE(entry.status.ok()) << entry.status;
    EXPECT_EQ(entry.head.number(), 6);
    EXPECT_EQ(entry.head.id(), IdOf(1));
    EXPECT_EQ(entry.generation, 2);
    EXPECT_EQ(entry.tensors, 6);
    EXPECT_GT(entry.bytes, 11000);
  }
}

TEST_F(SnapshotStoreTest, RemovesASession) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  ASSERT_TRUE(store_->Write(ImageOf(7, 1)).ok());
  const std::string key = SessionKeyOf(IdOf(0));
  EXPECT_TRUE(store_->Remove(key).ok());
  EXPECT_TRUE(store_->Remove(key).ok());
  EXPECT_TRUE(absl::IsNotFound(Load().status()));
  EXPECT_THAT(*store_->List(), SizeIs(1));
  EXPECT_TRUE(absl::IsNotFound(files_.List(FolderOf()).status()));
  EXPECT_TRUE(Load(1).ok());
}

TEST_F(SnapshotStoreTest, RemovesWhatWasNeverCommitted) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  ASSERT_TRUE(files_.CreateFolder(FolderOf(1)).ok());
  files_.Put(FolderOf(1) + "/part.safetensors", "content");
  files_.Put(FolderOf(1) + "/manifest-1.tmp", "content");
  Restart();
  EXPECT_TRUE(absl::IsNotFound(files_.List(FolderOf(1)).status()));
  ExpectLoads(ImageOf(5));
}

TEST_F(SnapshotStoreTest, RemovesWhatACrashLeftOfAWrite) {
  ASSERT_TRUE(store_->Write(ImageOf(1)).ok());
  ASSERT_TRUE(store_->FolderOf(SessionKeyOf(IdOf(0)))->KeepNamed("first").ok());
  ASSERT_TRUE(store_->Write(ImageOf(2)).ok());
  const std::vector<std::string> before = Names();
  const auto leave = [&](const std::string& name) {
    files_.Put(FolderOf() + "/" + name, "half of it");
  };
  leave("manifest-3.tmp");
  leave(PartName(std::string(32, 'p')));
  Restart();
  EXPECT_EQ(Names(), before);
  ExpectLoads(ImageOf(2));
  // Nobody knows which parts a broken manifest names.
  leave(PartName(std::string(32, 'p')));
  leave("named-first");
  Restart();
  EXPECT_THAT(Names(), SizeIs(before.size() + 1));
}

TEST_F(SnapshotStoreTest, RefusesAFormatOfALaterVersion) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  ASSERT_TRUE(store_->Write(ImageOf(6)).ok());
  const std::string path = FolderOf() + "/manifest-2";
  std::string file = files_.Contents()[path];
  snapshots::Manifest message;
  ASSERT_TRUE(message.ParseFromString(file.substr(0, file.size() - 32)));
  message.set_format_version(2);
  file = message.SerializeAsString();
  files_.Put(path, file + Sha256Of(file));
  const absl::Status status = Load().status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason, Reason::kUnsupported);
  EXPECT_EQ(detail->field, path + ": manifest.format_version");
}

TEST_F(SnapshotStoreTest, RefusesTheManifestOfAnotherSessionOrGeneration) {
  ASSERT_TRUE(store_->Write(ImageOf(5)).ok());
  ASSERT_TRUE(store_->Write(ImageOf(7, 1)).ok());
  const std::string path = FolderOf() + "/manifest-";
  const std::string content = files_.Contents()[path + "1"];
  files_.Put(path + "1", files_.Contents()[FolderOf(1) + "/manifest-1"]);
  EXPECT_THAT(Load().status().message(), HasSubstr("another session"));
  files_.Put(path + "1", content);
  files_.Put(path + "2", content);
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok());
  EXPECT_THAT(loaded->broken, ElementsAre(HasSubstr("found 1, expected 2")));
}

// The locks of the file system don't work.
TEST(SnapshotStoreFenceTest, KeepsAZombieFromCommitting) {
  MemoryFiles files(/*locks=*/false);
  auto zombie = SnapshotStore::Open("s", &files);
  ASSERT_TRUE(zombie.ok());
  ASSERT_TRUE((*zombie)->Write(ImageOf(5)).ok());
  const auto next = SnapshotStore::Open("s", &files);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ((*next)->fencing_number(), 2);
  const std::string key = SessionKeyOf(IdOf(0));
  ASSERT_TRUE((*next)->Load(key, AllocateForTest).ok());
  ASSERT_TRUE((*next)->Write(ImageOf(6)).ok());
  const auto before = files.Contents();
  EXPECT_TRUE(absl::IsFailedPrecondition((*zombie)->Write(ImageOf(7))));
  EXPECT_TRUE(absl::IsFailedPrecondition((*zombie)->Remove(key)));
  EXPECT_EQ(files.Contents(), before);
}

TEST(SnapshotStoreFenceTest, GoesOnAfterTheSessionsIfTheNumberIsGone) {
  MemoryFiles files(/*locks=*/false);
  for (int server = 1; server <= 3; ++server) {
    const auto store = SnapshotStore::Open("s", &files);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE(server < 3 || (*store)->Write(ImageOf(5)).ok());
  }
  ASSERT_TRUE(files.Unlink("s/fence").ok());
  const auto next = SnapshotStore::Open("s", &files);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ((*next)->fencing_number(), 4);
}

TEST(SnapshotStoreThreadsTest, WritesSessionsAtOnce) {
  const std::string folder = testing::TempDir() + "/threads";
  const auto store = SnapshotStore::Open(folder, PosixFiles());
  ASSERT_TRUE(store.ok());
  std::vector<std::thread> threads;
  for (int64_t session = 0; session < 4; ++session) {
    threads.emplace_back([&, session] {
      for (int64_t number = 1; number < 6; ++number) {
        EXPECT_TRUE((*store)->Write(ImageOf(number, session / 2)).ok());
        EXPECT_TRUE((*store)->List().ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto entries = (*store)->List();
  ASSERT_TRUE(entries.ok() && entries->size() == 2);
  for (const SnapshotEntry& entry : *entries) {
    EXPECT_EQ(entry.generation, 10);
    EXPECT_TRUE((*store)->Load(entry.key, AllocateForTest).ok());
  }
}

}  // namespace
}  // namespace convgrad

// Tests snapshots with names: through later generations, restarts, failing
// disks, crashes and damage.
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/snapshots/session_files.h"
#include "server/snapshots/snapshot_store.h"
#include "tests/server/snapshots/failing_files.h"
#include "tests/server/snapshots/images.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string& Key() {
  static const auto& key = *new std::string(SessionKeyOf(IdOf(0)));
  return key;
}

SessionFolder& Folder(SnapshotStore& store) { return *store.FolderOf(Key()); }
std::string FolderName() { return "s/sessions/" + Key() + "/"; }

// Returns the number that the snapshot of this name has, and checks all of it;
// -1 if it can't be loaded.
int64_t NumberOf(SnapshotStore* store, const std::string& name) {
  const auto image = Folder(*store).LoadNamed(name, AllocateForTest);
  if (!image.ok()) {
    EXPECT_TRUE(absl::IsDataLoss(image.status()) ||
                absl::IsNotFound(image.status()))
        << image.status();
    return -1;
  }
  EXPECT_EQ(TextOf(*image), TextOf(ImageOf(image->head.number())));
  return image->head.number();
}

std::unique_ptr<SnapshotStore> Open(FileSystem* files) {
  auto store = SnapshotStore::Open("s", files);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

// A store whose number 1 is "first", and which has 3 as the newest.
class NamedSnapshotTest : public testing::Test {
 protected:
  NamedSnapshotTest() {
    Write(1);
    EXPECT_TRUE(Folder(*store_).KeepNamed("first").ok());
    Write(2);
    Write(3);
  }

  void Write(int64_t number) {
    const absl::Status written = store_->Write(ImageOf(number));
    EXPECT_TRUE(written.ok()) << written;
  }
  // Starts another server, which loads the session.
  void Restart(FileSystem* files = nullptr) {
    store_.reset();
    store_ = Open(files == nullptr ? &files_ : files);
    EXPECT_EQ(Load(), 3);
  }
  int64_t Load() {
    const auto loaded = store_->Load(Key(), AllocateForTest);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return -1;
    EXPECT_THAT(loaded->broken, IsEmpty());
    EXPECT_EQ(TextOf(loaded->image),
              TextOf(ImageOf(loaded->image.head.number())));
    return loaded->image.head.number();
  }
  std::vector<NamedEntry> Listed() { return (*store_->List())[0].named; }
  std::vector<std::string> Names() {
    return *files_.List("s/sessions/" + Key());
  }

  MemoryFiles files_;
  std::unique_ptr<SnapshotStore> store_ = Open(&files_);
};

TEST_F(NamedSnapshotTest, StaysWhileGenerationsGo) {
  EXPECT_EQ(NumberOf(store_.get(), "first"), 1);
  Restart();
  Write(4);
  Write(5);
  EXPECT_EQ(NumberOf(store_.get(), "first"), 1);
  EXPECT_EQ(Load(), 5);
  ASSERT_THAT(Listed(), SizeIs(1));
  EXPECT_EQ(Listed()[0].name, "first");
  EXPECT_EQ(Listed()[0].number, 1);
  EXPECT_GT(Listed()[0].bytes, 9000);
}

TEST_F(NamedSnapshotTest, ADroppedOneLeavesNothing) {
  EXPECT_THAT(Names(), SizeIs(6));  // A part and a manifest each.
  EXPECT_TRUE(Folder(*store_).DropNamed("first").ok());
  EXPECT_THAT(Names(), SizeIs(4));
  EXPECT_EQ(NumberOf(store_.get(), "first"), -1);
  EXPECT_TRUE(Folder(*store_).DropNamed("first").ok());
  EXPECT_THAT(Listed(), IsEmpty());
  EXPECT_EQ(Load(), 3);
}

TEST_F(NamedSnapshotTest, ADropAfterTheLoadKeepsBothGenerations) {
  Restart();
  EXPECT_TRUE(Folder(*store_).DropNamed("first").ok());
  EXPECT_THAT(Names(), Contains("manifest-2"));
  Write(4);
  EXPECT_THAT(Names(), SizeIs(4));
}

TEST_F(NamedSnapshotTest, ANameIsReplaced) {
  EXPECT_TRUE(Folder(*store_).KeepNamed("first").ok());
  EXPECT_EQ(NumberOf(store_.get(), "first"), 3);
  EXPECT_THAT(Names(), SizeIs(5));
  EXPECT_TRUE(Folder(*store_).KeepNamed("other .tmp").ok());
  EXPECT_TRUE(Folder(*store_).KeepNamed("..").ok());
  EXPECT_THAT(Names(), SizeIs(7));
  EXPECT_EQ(NumberOf(store_.get(), "other .tmp"), 3);
  EXPECT_EQ(NumberOf(store_.get(), ".."), 3);
}

TEST_F(NamedSnapshotTest, ARemovedSessionHasNone) {
  EXPECT_TRUE(store_->Remove(Key()).ok());
  EXPECT_THAT(*files_.List("s/sessions"), IsEmpty());
}

TEST_F(NamedSnapshotTest, IsNoGeneration) {
  for (const char* manifest : {"manifest-2", "manifest-3"}) {
    ASSERT_TRUE(files_.Unlink(FolderName() + manifest).ok());
  }
  EXPECT_THAT(*store_->List(), IsEmpty());
  store_.reset();
  store_ = Open(&files_);
  EXPECT_THAT(*files_.List("s/sessions"), IsEmpty());
}

// Training from a snapshot again may give the same bits as before.
TEST_F(NamedSnapshotTest, ItsPartsAreUsedIfTheyAreIntact) {
  Restart();
  const size_t before = files_.operations().size();
  Write(1);
  std::vector<std::string> created;
  for (size_t i = before; i < files_.operations().size(); ++i) {
    const FileOperation& operation = files_.operations()[i];
    if (operation.kind == FileOperation::Kind::kCreate) {
      created.push_back(operation.path);
    }
  }
  EXPECT_THAT(created, SizeIs(1)) << "the manifest";
}

TEST_F(NamedSnapshotTest, ItsDamagedPartsAreWrittenAgain) {
  Restart();
  for (auto& [path, content] : files_.Contents()) {
    if (path.find(".safetensors") == std::string::npos) continue;
    std::string damaged = content;
    damaged[damaged.size() / 2] ^= 1;
    files_.Put(path, damaged);
  }
  EXPECT_EQ(NumberOf(store_.get(), "first"), -1);
  Write(1);
  EXPECT_EQ(Load(), 1);
  EXPECT_EQ(NumberOf(store_.get(), "first"), 1);
}

TEST_F(NamedSnapshotTest, AFailureToReadItsPartsReplacesNone) {
  int64_t opens = -1;
  FailingFiles files(&files_, [&](int64_t /*call*/, const std::string& name) {
    return name == "open" && opens-- == 0 ? Fault::kNoSpace : Fault::kNone;
  });
  Restart(&files);
  const auto before = files_.Contents();
  opens = 1;  // The one after the fence's.
  EXPECT_TRUE(absl::IsResourceExhausted(store_->Write(ImageOf(1))));
  EXPECT_EQ(files_.Contents(), before);
  EXPECT_EQ(NumberOf(store_.get(), "first"), 1);
}

TEST_F(NamedSnapshotTest, EveryDamagedByteIsRefusedAndNamed) {
  const auto contents = files_.Contents();
  const std::string file = FolderName() + "named-first";
  const auto manifest = DecodeManifest(contents.at(file));
  std::vector<std::string> paths = {file};
  for (const ManifestPart& part : manifest->parts) {
    paths.push_back(FolderName() + PartName(part.sha256));
  }
  for (const std::string& path : paths) {
    const std::string& content = contents.at(path);
    for (size_t i = 0; i < content.size(); i += 1 + content.size() / 500) {
      std::string damaged = content;
      damaged[i] ^= 1;
      files_.Put(path, damaged);
      const absl::Status status =
          Folder(*store_).LoadNamed("first", AllocateForTest).status();
      ASSERT_TRUE(absl::IsDataLoss(status)) << path << " " << i << status;
      ASSERT_THAT(status.message(), HasSubstr(file));
      ASSERT_THAT(status.message(), HasSubstr("expected"));
    }
    files_.Put(path, content.substr(0, content.size() - 1));
    EXPECT_EQ(NumberOf(store_.get(), "first"), -1);
    files_.Put(path, content);
  }
  EXPECT_EQ(Load(), 3);
}

TEST_F(NamedSnapshotTest, ABrokenManifestIsListedAndCanBeDropped) {
  files_.Put(FolderName() + "named-first", "nothing");
  Restart();
  ASSERT_THAT(Listed(), SizeIs(1));
  EXPECT_TRUE(absl::IsInvalidArgument(Listed()[0].status));
  Write(4);
  EXPECT_THAT(Names(), Contains("named-first"));
  EXPECT_TRUE(Folder(*store_).DropNamed("first").ok());
  EXPECT_THAT(Names(), SizeIs(4));
}

// Fails each call of `work` once and checks what another server finds, without
// a crash and after crashes.
void ForEachFault(
    Fault fault, const std::function<absl::Status(SnapshotStore*)>& work,
    const std::function<void(const absl::Status&, SnapshotStore*)>& check) {
  std::mt19937 random(35);
  for (int64_t first = 0;; ++first) {
    SCOPED_TRACE("call " + std::to_string(first));
    MemoryFiles files;
    int64_t begin = -1;
    FailingFiles failing(&files, [&](int64_t call, const std::string&) {
      return begin >= 0 && call - begin == first ? fault : Fault::kNone;
    });
    const auto store = Open(&failing);
    ASSERT_TRUE(store->Write(ImageOf(1)).ok());
    ASSERT_TRUE(Folder(*store).KeepNamed("first").ok());
    ASSERT_TRUE(store->Write(ImageOf(2)).ok());
    ASSERT_TRUE(store->Write(ImageOf(3)).ok());
    begin = failing.calls();
    const absl::Status worked = work(store.get());
    if (failing.calls() - begin <= first) {
      EXPECT_GT(first, 3);
      return;
    }
    for (int round = 0; round < 20; ++round) {
      const auto found = MemoryFiles::AfterCrash(
          files.operations(), [&] { return round == 0 || random() % 2 == 0; });
      const auto next = Open(found.get());
      const auto loaded = next->Load(Key(), AllocateForTest);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_EQ(loaded->image.head.number(), 3);
      check(worked, next.get());
    }
    // The server goes on.
    begin = -1;
    EXPECT_TRUE(store->Write(ImageOf(4)).ok());
    check(worked, store.get());
    EXPECT_TRUE(Folder(*store).KeepNamed("first").ok());
    EXPECT_EQ(NumberOf(store.get(), "first"), 4);
    EXPECT_TRUE(Folder(*store).DropNamed("first").ok());
    EXPECT_TRUE(Folder(*store).DropNamed("new").ok());
    EXPECT_THAT(*files.List("s/sessions/" + Key()), SizeIs(4));
    if (testing::Test::HasFailure()) return;
  }
}

class NamedSnapshotFaultTest : public testing::TestWithParam<Fault> {};

TEST_P(NamedSnapshotFaultTest, ANameHasTheSnapshotBeforeOrThisOne) {
  ForEachFault(
      GetParam(),
      [](SnapshotStore* store) { return Folder(*store).KeepNamed("first"); },
      [](const absl::Status& kept, SnapshotStore* store) {
        const int64_t number = NumberOf(store, "first");
        EXPECT_TRUE(number == 3 || (number == 1 && !kept.ok()))
            << number << kept;
      });
}

TEST_P(NamedSnapshotFaultTest, ANewNameHasThisSnapshotOrNone) {
  ForEachFault(
      GetParam(),
      [](SnapshotStore* store) { return Folder(*store).KeepNamed("new"); },
      [](const absl::Status& kept, SnapshotStore* store) {
        EXPECT_EQ(NumberOf(store, "first"), 1);
        const auto image = Folder(*store).LoadNamed("new", AllocateForTest);
        EXPECT_TRUE(image.ok() ||
                    (!kept.ok() && (*store->List())[0].named.size() == 1))
            << kept << image.status();
      });
}

TEST_P(NamedSnapshotFaultTest, ADroppedOneIsWholeOrGone) {
  ForEachFault(
      GetParam(),
      [](SnapshotStore* store) { return Folder(*store).DropNamed("first"); },
      [](const absl::Status& dropped, SnapshotStore* store) {
        const bool is_listed = !(*store->List())[0].named.empty();
        EXPECT_FALSE(dropped.ok() && is_listed);
        EXPECT_EQ(NumberOf(store, "first"), is_listed ? 1 : -1);
      });
}

TEST_P(NamedSnapshotFaultTest, IsKeptByAWriteThatFails) {
  ForEachFault(
      GetParam(),
      [](SnapshotStore* store) {
        // Shares parts with the snapshot.
        SessionImage image = ImageOf(1);
        image.head.set_number(3);
        image.head.set_trainer_state(ImageOf(3).head.trainer_state());
        store->Write(image).IgnoreError();
        return absl::OkStatus();
      },
      [](const absl::Status&, SnapshotStore* store) {
        EXPECT_EQ(NumberOf(store, "first"), 1);
      });
}

INSTANTIATE_TEST_SUITE_P(Faults, NamedSnapshotFaultTest,
                         testing::Values(Fault::kError, Fault::kNoSpace,
                                         Fault::kFlipped));

// A crash after each operation of two servers that keep, replace and drop.
TEST(NamedSnapshotCrashTest, ANameIsWholeOrAbsent) {
  struct Milestone {
    size_t operations;
    int64_t kept;  // 0: no snapshot of the name.
  };
  MemoryFiles files;
  std::vector<Milestone> milestones;
  const auto reached = [&](int64_t kept) {
    milestones.push_back({files.operations().size(), kept});
  };
  reached(0);
  auto store = Open(&files);
  const auto write = [&](int64_t number) {
    EXPECT_TRUE(store->Write(ImageOf(number)).ok());
  };
  const auto keep = [&](int64_t number) {
    EXPECT_TRUE(Folder(*store).KeepNamed("best").ok());
    reached(number);
  };
  write(1);
  keep(1);
  write(2);
  write(3);
  keep(3);
  write(4);
  store.reset();
  store = Open(&files);
  EXPECT_TRUE(store->Load(Key(), AllocateForTest).ok());
  write(5);
  EXPECT_TRUE(Folder(*store).DropNamed("best").ok());
  reached(0);
  write(6);
  keep(6);
  std::mt19937 random(35);
  for (int round = 0; round < 60; ++round) {
    size_t milestone = 0;
    for (size_t count = 0; count <= files.operations().size(); ++count) {
      while (milestone + 1 < milestones.size() &&
             milestones[milestone + 1].operations <= count) {
        ++milestone;
      }
      SCOPED_TRACE("crash after " + std::to_string(count));
      const std::vector<FileOperation> done(files.operations().begin(),
                                            files.operations().begin() + count);
      const auto found = MemoryFiles::AfterCrash(
          done, [&] { return round == 0 || (round > 1 && random() % 2 == 0); });
      const auto next = Open(found.get());
      const auto entries = next->List();
      int64_t kept = 0;
      if (!entries->empty()) {
        ASSERT_TRUE((*entries)[0].status.ok());
        for (const NamedEntry& entry : (*entries)[0].named) {
          EXPECT_TRUE(entry.status.ok()) << entry.status;
          kept = NumberOf(next.get(), entry.name);
          EXPECT_EQ(kept, entry.number);
        }
      }
      const size_t after = std::min(milestone + 1, milestones.size() - 1);
      EXPECT_TRUE(kept == milestones[milestone].kept ||
                  kept == milestones[after].kept)
          << kept;
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
}

}  // namespace
}  // namespace convgrad

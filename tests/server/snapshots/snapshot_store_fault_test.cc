// Fails each call of the file system once, and all calls from each on.
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/snapshots/snapshot_store.h"
#include "tests/server/snapshots/failing_files.h"
#include "tests/server/snapshots/images.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// A store with numbers 1 and 2, whose calls can then fail.
class Disk {
 public:
  Disk() {
    auto store = SnapshotStore::Open("s", &failing_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    EXPECT_TRUE(store_->Write(ImageOf(1)).ok());
    EXPECT_TRUE(store_->Write(ImageOf(2)).ok());
  }

  // Fails calls from now on, which are counted from 0.
  void Fail(FailingFiles::Choose choose) {
    begin_ = failing_.calls();
    choose_ = std::move(choose);
  }
  void Mend() { choose_ = nullptr; }
  int64_t calls() const { return failing_.calls() - begin_; }
  SnapshotStore& store() { return *store_; }
  MemoryFiles& files() { return files_; }
  absl::StatusOr<LoadedSnapshot> Load() {
    return store_->Load(key_, AllocateForTest);
  }
  // Loads as another server does.
  absl::StatusOr<LoadedSnapshot> LoadAfter(MemoryFiles* files) const {
    auto store = SnapshotStore::Open("s", files);
    if (!store.ok()) return store.status();
    return (*store)->Load(key_, AllocateForTest);
  }
  void Stop() { store_.reset(); }
  std::vector<std::string> Names() {
    return *files_.List("s/sessions/" + key_);
  }

 private:
  Fault Next(int64_t call, const std::string& name) {
    return choose_ == nullptr ? Fault::kNone : choose_(call - begin_, name);
  }

  const std::string key_ = SessionKeyOf(IdOf(0));
  MemoryFiles files_;
  FailingFiles failing_{&files_, [this](int64_t call, const std::string& name) {
                          return Next(call, name);
                        }};
  int64_t begin_ = 0;
  FailingFiles::Choose choose_;
  std::unique_ptr<SnapshotStore> store_;
};

void ExpectNumber(const absl::StatusOr<LoadedSnapshot>& loaded,
                  int64_t number) {
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(TextOf(loaded->image), TextOf(ImageOf(number)));
}

// Checks a disk on which the write of number 3 has ended with `written`.
void CheckAfterWrite(const absl::Status& written, Disk* disk) {
  disk->Mend();
  const auto loaded =
      disk->LoadAfter(MemoryFiles::AfterCrash(disk->files().operations(), [] {
                        return true;
                      }).get());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  // The error doesn't say whether the generation is there, but it's whole.
  EXPECT_THAT(loaded->broken, IsEmpty());
  const int64_t number = loaded->image.head.number();
  EXPECT_TRUE(number == 3 || (number == 2 && !written.ok())) << number;
  ExpectNumber(loaded, number);
  // The store goes on without a restart, and leaves nothing behind.
  const absl::Status next = disk->store().Write(ImageOf(4));
  ASSERT_TRUE(next.ok()) << next;
  EXPECT_THAT(disk->Names(), SizeIs(4));
  ExpectNumber(disk->Load(), 4);
}

// Writes number 3 while `choose` fails calls, for each first call.
void WriteWithFaults(
    const std::function<Fault(int64_t call, int64_t first)>& choose,
    const std::function<void(const absl::Status&, Disk*)>& check) {
  int64_t first = 0;
  for (;; ++first) {
    SCOPED_TRACE("call " + std::to_string(first));
    Disk disk;
    std::string name;
    disk.Fail([&](int64_t call, const std::string& called) {
      if (call == first) name = called;
      return choose(call, first);
    });
    const absl::Status written = disk.store().Write(ImageOf(3));
    if (disk.calls() <= first) break;
    SCOPED_TRACE(name);
    ASSERT_NO_FATAL_FAILURE(check(written, &disk));
  }
  EXPECT_GT(first, 20);
}

TEST(SnapshotFaultTest, ContinuesShortReadsAndWrites) {
  WriteWithFaults([](int64_t, int64_t) { return Fault::kShort; },
                  [](const absl::Status& written, Disk* disk) {
                    EXPECT_TRUE(written.ok()) << written;
                    CheckAfterWrite(written, disk);
                  });
}

class SnapshotOneFaultTest : public testing::TestWithParam<Fault> {};

TEST_P(SnapshotOneFaultTest, KeepsTheGenerationBefore) {
  int failed = 0;
  WriteWithFaults(
      [](int64_t call, int64_t first) {
        return call == first ? GetParam() : Fault::kNone;
      },
      [&](const absl::Status& written, Disk* disk) {
        failed += written.ok() ? 0 : 1;
        CheckAfterWrite(written, disk);
      });
  EXPECT_GT(failed, 4);
}

TEST_P(SnapshotOneFaultTest, KeepsItThroughACrash) {
  std::mt19937 random(35);
  WriteWithFaults(
      [](int64_t call, int64_t first) {
        return call == first ? GetParam() : Fault::kNone;
      },
      [&](const absl::Status& written, Disk* disk) {
        for (int round = 0; round < 20; ++round) {
          const auto files = MemoryFiles::AfterCrash(
              disk->files().operations(), [&] { return random() % 2 == 0; });
          const auto loaded = disk->LoadAfter(files.get());
          ASSERT_TRUE(loaded.ok()) << loaded.status();
          const int64_t number = loaded->image.head.number();
          EXPECT_TRUE(number == 3 || (number == 2 && !written.ok())) << number;
          ExpectNumber(loaded, number);
        }
      });
}

TEST_P(SnapshotOneFaultTest, LoadsNothingElse) {
  for (int64_t first = 0;; ++first) {
    SCOPED_TRACE("call " + std::to_string(first));
    Disk disk;
    disk.Fail([first](int64_t call, const std::string&) {
      return call == first ? GetParam() : Fault::kNone;
    });
    const auto loaded = disk.Load();
    if (disk.calls() <= first) break;
    if (!loaded.ok()) {
      // Only a listing that fails, or an error of no disk.
      EXPECT_TRUE(first == 0 || GetParam() == Fault::kNoSpace)
          << loaded.status();
      continue;
    }
    EXPECT_TRUE(GetParam() != Fault::kNoSpace);
    const int64_t number = loaded->image.head.number();
    EXPECT_THAT(loaded->broken, SizeIs(2 - number));
    ExpectNumber(loaded, number);
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, SnapshotOneFaultTest,
                         testing::Values(Fault::kError, Fault::kNoSpace,
                                         Fault::kFlipped));

TEST(SnapshotFaultTest, GoesOnWhenTheDiskIsBack) {
  for (const Fault fault : {Fault::kError, Fault::kNoSpace}) {
    WriteWithFaults(
        [fault](int64_t call, int64_t first) {
          return call >= first ? fault : Fault::kNone;
        },
        CheckAfterWrite);
  }
}

TEST(SnapshotFaultTest, SaysThatTheDiskIsFull) {
  Disk disk;
  disk.Fail([](int64_t, const std::string& name) {
    return name == "write" ? Fault::kNoSpace : Fault::kNone;
  });
  EXPECT_TRUE(absl::IsResourceExhausted(disk.store().Write(ImageOf(3))));
  EXPECT_THAT(disk.Names(), SizeIs(4)) << "the failed files are removed";
}

// A second fsync of the same file would return OK although pages are lost.
TEST(SnapshotFaultTest, NeverSyncsAFileAgain) {
  Disk disk;
  disk.Fail([](int64_t, const std::string& name) {
    return name == "sync" ? Fault::kError : Fault::kNone;
  });
  EXPECT_TRUE(absl::IsDataLoss(disk.store().Write(ImageOf(3))));
  disk.Mend();
  const size_t before = disk.files().operations().size();
  EXPECT_TRUE(disk.store().Write(ImageOf(3)).ok());
  const auto& operations = disk.files().operations();
  std::set<size_t> created;
  for (size_t i = before; i < operations.size(); ++i) {
    if (operations[i].kind == FileOperation::Kind::kCreate) {
      created.insert(operations[i].file);
    } else if (operations[i].kind == FileOperation::Kind::kSync) {
      EXPECT_EQ(created.count(operations[i].file), 1);
    }
  }
  EXPECT_THAT(created, SizeIs(2));
}

TEST(SnapshotFaultTest, OpensOrSaysWhyNot) {
  for (int64_t first = 0;; ++first) {
    Disk disk;
    disk.Stop();
    FailingFiles failing(&disk.files(), [&](int64_t call, const std::string&) {
      return call == first ? Fault::kError : Fault::kNone;
    });
    const absl::Status opened = SnapshotStore::Open("s", &failing).status();
    if (failing.calls() <= first) break;
    // An uncommitted session that can't be looked for is no reason to stop.
    EXPECT_TRUE(opened.ok() || absl::IsDataLoss(opened)) << first;
    ExpectNumber(disk.LoadAfter(&disk.files()), 2);
  }
}

TEST(SnapshotFaultTest, RemovesAllOrSaysWhyNot) {
  const std::string key = SessionKeyOf(IdOf(0));
  for (int64_t first = 0;; ++first) {
    Disk disk;
    disk.Fail([first](int64_t call, const std::string&) {
      return call == first ? Fault::kError : Fault::kNone;
    });
    const absl::Status removed = disk.store().Remove(key);
    if (disk.calls() <= first) break;
    EXPECT_FALSE(removed.ok()) << first;
    disk.Mend();
    EXPECT_TRUE(disk.store().Remove(key).ok());
    EXPECT_TRUE(absl::IsNotFound(disk.Load().status()));
  }
}

// Files of which one can't be removed, as a folder that a file server shows.
class StuckFiles : public MemoryFiles {
 public:
  absl::Status Unlink(const std::string& path) override {
    if (!absl::EndsWith(path, "/.snapshot")) return MemoryFiles::Unlink(path);
    return absl::FailedPreconditionError("EISDIR");
  }
};

TEST(SnapshotFaultTest, AFileThatStaysKeepsNoOther) {
  StuckFiles files;
  auto store = SnapshotStore::Open("s", &files);
  ASSERT_TRUE(store.ok()) << store.status();
  const std::string key = SessionKeyOf(IdOf(0));
  const std::string folder = "s/sessions/" + key;
  size_t least = 0;
  for (int64_t number = 1; number <= 6; ++number) {
    ASSERT_TRUE((*store)->Write(ImageOf(number)).ok());
    if (number == 3) least = files.List(folder)->size();
    if (number == 3) files.Put(folder + "/.snapshot", "");
  }
  EXPECT_THAT(*files.List(folder), SizeIs(least + 1));
  EXPECT_FALSE((*store)->Remove(key).ok());
  EXPECT_THAT(*files.List(folder), testing::ElementsAre(".snapshot"));
}

}  // namespace
}  // namespace convgrad

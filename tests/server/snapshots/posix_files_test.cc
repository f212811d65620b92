#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/snapshots/file_system.h"
#include "server/snapshots/verified_file.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PosixFilesTest : public testing::Test {
 protected:
  PosixFilesTest() {
    folder_ = testing::TempDir() + "/posix_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    EXPECT_TRUE(files_->CreateFolder(folder_).ok());
  }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  void Write(const std::string& name, const std::string& content) const {
    const auto file = files_->Create(Path(name));
    ASSERT_TRUE(file.ok()) << file.status();
    const auto written = (*file)->Write(AsBytes(content));
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(*written, static_cast<int64_t>(content.size()));
    EXPECT_TRUE((*file)->Sync().ok());
  }
  std::string Read(const std::string& name) const {
    std::ostringstream content;
    content << std::ifstream(Path(name)).rdbuf();
    return content.str();
  }
  mode_t ModeOf(const std::string& path) const {
    struct stat found = {};
    EXPECT_EQ(stat(path.c_str(), &found), 0);
    return found.st_mode & 0777;
  }

  FileSystem* const files_ = PosixFiles();
  std::string folder_;
};

TEST_F(PosixFilesTest, WritesAndReads) {
  Write("a", "content");
  EXPECT_EQ(Read("a"), "content");
  const auto file = files_->Open(Path("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), 7);
  std::string read(10, '.');
  const auto count = (*file)->Read(
      3, {reinterpret_cast<std::byte*>(read.data()), read.size()});
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 4);
  EXPECT_EQ(read, "tent......");
  EXPECT_EQ(*(*file)->Read(7, {reinterpret_cast<std::byte*>(read.data()), 1}),
            0);
}

TEST_F(PosixFilesTest, KeepsFilesFromOtherUsers) {
  Write("a", "secret");
  EXPECT_EQ(ModeOf(Path("a")), 0600);
  EXPECT_EQ(ModeOf(folder_), 0700);
}

TEST_F(PosixFilesTest, CreatesANewFileInPlaceOfAnOldOne) {
  Write("a", "old content");
  ASSERT_EQ(link(Path("a").c_str(), Path("b").c_str()), 0);
  Write("a", "new");
  EXPECT_EQ(Read("a"), "new");
  EXPECT_EQ(Read("b"), "old content");
}

TEST_F(PosixFilesTest, FollowsNoSymbolicLink) {
  Write("a", "content");
  ASSERT_EQ(symlink(Path("a").c_str(), Path("link").c_str()), 0);
  EXPECT_TRUE(absl::IsDataLoss(files_->Open(Path("link")).status()));
  Write("link", "new");
  EXPECT_EQ(Read("a"), "content");
}

TEST_F(PosixFilesTest, ReadsOnlyRegularFiles) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsDataLoss(files_->Open(Path("fifo")).status()));
  EXPECT_TRUE(absl::IsDataLoss(files_->Open(folder_).status()));
}

TEST_F(PosixFilesTest, ListsRenamesAndRemoves) {
  Write("b", "1");
  Write("a", "2");
  EXPECT_TRUE(files_->CreateFolder(Path("c")).ok());
  EXPECT_TRUE(files_->CreateFolder(Path("c")).ok());
  EXPECT_THAT(*files_->List(folder_), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(files_->Rename(Path("b"), Path("a")).ok());
  EXPECT_EQ(Read("a"), "1");
  EXPECT_TRUE(files_->SyncFolder(folder_).ok());
  EXPECT_TRUE(files_->RemoveFolder(Path("c")).ok());
  EXPECT_TRUE(files_->Unlink(Path("a")).ok());
  EXPECT_THAT(*files_->List(folder_), ElementsAre());
}

TEST_F(PosixFilesTest, NamesCallAndPathInErrors) {
  const absl::Status errors[] = {
      files_->Open(Path("none")).status(),
      files_->Create(Path("none/a")).status(),
      files_->Unlink(Path("none")),
      files_->Rename(Path("none"), Path("a")),
      files_->SyncFolder(Path("none")),
      files_->RemoveFolder(Path("none")),
      files_->CreateFolder(Path("none/a")),
      files_->List(Path("none")).status(),
      files_->Lock(Path("none/a")).status(),
  };
  for (const absl::Status& error : errors) {
    EXPECT_TRUE(absl::IsNotFound(error)) << error;
    EXPECT_THAT(error.message(), HasSubstr(Path("none")));
  }
  EXPECT_THAT(errors[3].message(), HasSubstr("rename"));
}

TEST_F(PosixFilesTest, LocksOnce) {
  auto lock = files_->Lock(Path("lock"));
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(files_->Lock(Path("lock")).status()));
  lock->reset();
  EXPECT_TRUE(files_->Lock(Path("lock")).ok());
}

}  // namespace
}  // namespace convgrad

// `MemoryFiles` are files in memory that record each change, so that a test can
// try what a crash of the machine may leave on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/snapshots/file_system.h"

namespace convgrad {

// A change of the files, in the order of calls.
struct FileOperation {
  enum class Kind {
    kCreate,
    kWrite,
    kSync,
    kRename,
    kUnlink,
    kCreateFolder,
    kRemoveFolder,
    kSyncFolder
  };
  Kind kind;
  std::string path;
  // Of kCreate, kWrite, kSync and kRename: the number of the file.
  size_t file = 0;
  std::string to = {};  // Of kRename.
  // Of kWrite.
  size_t offset = 0;
  std::string bytes = {};
};

// Thread-compatible. Only FolderLock works between several objects, and only if
// `locks` is true.
class MemoryFiles : public FileSystem {
 public:
  explicit MemoryFiles(bool locks = true) : locks_(locks) {}

  // Returns files as a crash after these operations may leave them. What an
  // fsync covers is there. `keeps` is asked for every other change whether it
  // reached the disk: for each block of 4 KiB of a write, and for each change
  // of a folder. So writes are torn, and changes reordered. Folders at the
  // top are always there.
  static std::unique_ptr<MemoryFiles> AfterCrash(
      const std::vector<FileOperation>& operations,
      const std::function<bool()>& keeps);

  const std::vector<FileOperation>& operations() const { return operations_; }
  // Contents by path.
  std::map<std::string, std::string> Contents() const;
  // Replaces or removes the content of a file.
  void Put(const std::string& path, const std::string& content);

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Unlink(const std::string& path) override;
  absl::Status CreateFolder(const std::string& path) override;
  absl::Status RemoveFolder(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override;
  absl::StatusOr<FolderLock> Lock(const std::string& path) override;

 private:
  friend class MemoryWritableFile;

  const bool locks_;
  std::vector<std::shared_ptr<std::string>> files_;
  std::map<std::string, size_t> names_;
  std::set<std::string> folders_;
  std::vector<FileOperation> operations_;
  std::shared_ptr<std::set<std::string>> locked_ =
      std::make_shared<std::set<std::string>>();
};

}  // namespace convgrad

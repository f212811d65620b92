// `FileSystem` is the part of the operating system's files that snapshots use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace convgrad {

// `WritableFile` is a new file. The destructor closes it. Thread-compatible.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Appends the first bytes of `bytes` and returns how many, at least 1.
  // Requires: bytes isn't empty.
  virtual absl::StatusOr<int64_t> Write(absl::Span<const std::byte> bytes) = 0;
  // Returns when the bytes are on the disk.
  virtual absl::Status Sync() = 0;
};

// `ReadableFile` is an existing file. The destructor closes it.
// Thread-compatible.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // The size when the file was opened.
  virtual int64_t size() const = 0;
  // Reads bytes from `offset` and returns how many; 0 at the end of the file.
  virtual absl::StatusOr<int64_t> Read(int64_t offset,
                                       absl::Span<std::byte> bytes) = 0;
};

// An exclusive lock between processes, as long as the object exists.
using FolderLock = std::shared_ptr<const void>;

// Errors name the call and the path. The code is that of absl::ErrnoToStatus,
// but kDataLoss for EIO and ELOOP. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates an empty file of mode 0600. A file that exists is replaced by it.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) = 0;
  // Opens a file. Follows no symbolic link.
  // Errors: kDataLoss if it is no regular file.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) = 0;
  // Replaces the file `to` atomically.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  virtual absl::Status Unlink(const std::string& path) = 0;
  // Creates a folder of mode 0700. OK if it exists.
  virtual absl::Status CreateFolder(const std::string& path) = 0;
  // Removes an empty folder.
  virtual absl::Status RemoveFolder(const std::string& path) = 0;
  // Returns when the names in the folder are on the disk.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Returns the names in the folder, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) = 0;
  // Locks the file at `path`, which is created if it doesn't exist.
  // Errors: kFailedPrecondition if another process holds the lock.
  virtual absl::StatusOr<FolderLock> Lock(const std::string& path) = 0;
};

// Returns the operating system's files.
FileSystem* PosixFiles();

}  // namespace convgrad

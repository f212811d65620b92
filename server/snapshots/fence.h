// `Fence` keeps a server from changing a state folder that a later server uses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/snapshots/file_system.h"

namespace convgrad {

// The first guard is a lock on the file `lock`. The second is the number in the
// file `fence`, which each server increases when it starts: a file system whose
// locks don't work, or a lock that was lost, then does no harm. Check is no
// lock: a server that is suspended after Check may still change the folder.
//
// Thread-safe.
class Fence {
 public:
  // Locks `folder` and takes the next number. If there is no file, this is 1,
  // or 1 more than `known` returns. Requires: the folder exists. Errors:
  // kFailedPrecondition if another process holds the lock; kDataLoss if the
  // file has no number; those of FileSystem.
  static absl::StatusOr<std::unique_ptr<Fence>> Take(
      const std::string& folder, FileSystem* files,
      const std::function<int64_t()>& known = nullptr);

  // Returns OK if the number in the file is still number().
  // Errors: kFailedPrecondition if it isn't; those of FileSystem.
  absl::Status Check() const;

  int64_t number() const { return number_; }

 private:
  Fence(std::string path, FileSystem* files, FolderLock lock, int64_t number);

  const std::string path_;
  FileSystem* const files_;
  const FolderLock lock_;
  const int64_t number_;
};

}  // namespace convgrad

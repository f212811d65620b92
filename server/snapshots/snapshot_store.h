// `SnapshotStore` keeps snapshots of sessions in the folder of `--state_dir`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/mutex.h"
#include "server/snapshots/fence.h"
#include "server/snapshots/file_system.h"
#include "server/snapshots/session_folder.h"
#include "server/snapshots/session_image.h"

namespace convgrad {

// Each session has a folder with its last two generations. A generation is one
// manifest and the parts that it names by their SHA-256. Parts that haven't
// changed are shared by generations. README.md has the order of writes.
//
// Thread-safe. Calls for the same key wait for each other; calls for different
// keys run at once. Write and Load block on the disk for as long as it takes.
class SnapshotStore {
 public:
  // Opens the store in `folder`, which is created if it doesn't exist (mode
  // 0700). Locks it, and takes the next fencing number. `files` outlives the
  // store; PosixFiles() is the system's.
  // Errors: kFailedPrecondition if another process holds the lock; kDataLoss if
  // the fencing number is unreadable; the system's errors.
  static absl::StatusOr<std::unique_ptr<SnapshotStore>> Open(
      const std::string& folder, FileSystem* files);
  // Releases the lock.
  ~SnapshotStore();

  // Writes `image` as the next generation. If it returns OK, the image is
  // durable. Otherwise the generations before are as they were, and a later
  // Write starts anew.
  // Requires: if the session has snapshots of an earlier server, Load.
  // Errors: kInvalidArgument if the image is inconsistent or its manifest too
  // long; kFailedPrecondition if a later server uses the folder, or Load is
  // missing; kNotFound if the session is removed meanwhile;
  // kResourceExhausted if the disk is full; kDataLoss if the disk returns other
  // bytes than were written; the system's errors.
  absl::Status Write(const SessionImage& image);

  // Returns an entry for each session, in the order of keys. Reads manifests
  // only, so a part may still turn out to be broken.
  // Errors: the system's, if the folder can't be listed.
  absl::StatusOr<std::vector<SnapshotEntry>> List();

  // Loads the newest generation that is intact: every byte is verified. Calls
  // `allocate` for all tensors, programs and replies of a generation before it
  // reads the first of them. Each byte string gets memory of its own.
  // Errors: kNotFound if the session has no snapshot; kDataLoss if all
  // generations are broken, naming what is wrong with each;
  // kUnimplemented if the format of the newest one is of a later version; the
  // errors of `allocate`; the system's errors.
  absl::StatusOr<LoadedSnapshot> Load(absl::string_view key,
                                      AllocateBytes allocate);

  // Removes all snapshots of a session. OK if there are none. Requires: no
  // Write of the session follows.
  // Errors: kFailedPrecondition if a later server uses the folder; the
  // system's errors.
  absl::Status Remove(absl::string_view key);

  // Returns the folder of a session, which may not exist on disk yet.
  std::shared_ptr<SessionFolder> FolderOf(absl::string_view key);

  // Greater than those of all earlier servers of the folder.
  int64_t fencing_number() const { return fence_->number(); }

 private:
  SnapshotStore(std::string folder, std::unique_ptr<Fence> fence,
                FileSystem* files);

  // Removes what an earlier server left of sessions without a commit.
  absl::Status RemoveUncommitted();

  const std::string folder_;  // With the folders of sessions.
  const std::unique_ptr<Fence> fence_;
  FileSystem* const files_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<SessionFolder>, std::less<>> folders_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

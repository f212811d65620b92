// `SnapshotStore` keeps snapshots of sessions in the folder of `--state_dir`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/mutex.h"
#include "server/snapshots/file_system.h"
#include "server/snapshots/session_image.h"

namespace convgrad {

class SessionFolder;

// `WritableBytes` is memory for the bytes of one tensor, program or reply. Its
// bytes are writable at `data` until Load returns.
struct WritableBytes {
  std::shared_ptr<const void> owner;
  std::byte* data = nullptr;
};

// Returns memory for `size` bytes, aligned to 64 bytes, or the error that ends
// Load.
using AllocateBytes =
    absl::FunctionRef<absl::StatusOr<WritableBytes>(int64_t size)>;

// An image that was loaded.
struct LoadedSnapshot {
  SessionImage image;
  int64_t generation = 0;
  // One message for each newer generation that is broken. It names generation,
  // file, offset, found and expected. For the log.
  std::vector<std::string> broken;
};

// A session that has a snapshot.
struct SnapshotEntry {
  std::string key;
  // Why no manifest of the session can be used; OK if one can. The other
  // members are only set if it is OK.
  absl::Status status;
  ImageHead head;
  int64_t generation = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;  // Of tensors, programs and replies.
};

// Each session has a folder with its last two generations. A generation is one
// manifest and the parts that it names by their SHA-256. Parts that haven't
// changed are shared by generations. README.md has the order of writes.
//
// Thread-safe. Calls for the same key wait for each other; calls for different
// keys run at once. Write and Load block on the disk for as long as it takes.
class SnapshotStore {
 public:
  // The longest manifest, in bytes. Programs, replies and tensors aren't in it.
  static constexpr int64_t kMaxManifestBytes = int64_t{16} << 20;

  // Opens the store in `folder`, which is created if it doesn't exist (mode
  // 0700). Locks it, and takes the next fencing number. `files` outlives the
  // store; PosixFiles() is the system's.
  // Errors: kFailedPrecondition if another process holds the lock; kDataLoss if
  // the fencing number is unreadable; the system's errors.
  static absl::StatusOr<std::unique_ptr<SnapshotStore>> Open(
      const std::string& folder, FileSystem* files);
  // Releases the lock.
  ~SnapshotStore();

  // Returns the key of a session: the hex SHA-256 of its id.
  static std::string KeyOf(absl::string_view session_id);

  // Writes `image` as the next generation. If it returns OK, the image is
  // durable. Otherwise the generations before are as they were, and a later
  // Write starts anew.
  // Errors: kInvalidArgument if the image is inconsistent or its manifest too
  // long; kFailedPrecondition if a later server uses the folder;
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
  // kFailedPrecondition if a newer server wrote the newest one; the errors of
  // `allocate`; the system's errors.
  absl::StatusOr<LoadedSnapshot> Load(absl::string_view key,
                                      AllocateBytes allocate);

  // Removes all snapshots of a session. OK if there are none.
  // Errors: kFailedPrecondition if a later server uses the folder; the
  // system's errors.
  absl::Status Remove(absl::string_view key);

  // Greater than those of all earlier servers of the folder.
  int64_t fencing_number() const { return fencing_number_; }

 private:
  SnapshotStore(std::string folder, FileSystem* files,
                std::unique_ptr<FolderLock> lock, int64_t fencing_number);

  // Returns the folder of a session, which may not exist on disk yet.
  std::shared_ptr<SessionFolder> FolderOf(absl::string_view key);

  const std::string folder_;
  FileSystem* const files_;
  const std::unique_ptr<FolderLock> lock_;
  const int64_t fencing_number_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<SessionFolder>, std::less<>> folders_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

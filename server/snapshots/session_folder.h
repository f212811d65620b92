// `SessionFolder` holds the snapshots of one session on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/mutex.h"
#include "server/snapshots/fence.h"
#include "server/snapshots/file_system.h"
#include "server/snapshots/manifest.h"
#include "server/snapshots/part_plan.h"
#include "server/snapshots/session_image.h"

namespace convgrad {

// The longest manifest, in bytes. The largest session's has 6 MB.
inline constexpr int64_t kMaxManifestBytes = int64_t{16} << 20;

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

// Returns the key of a session: the hex SHA-256 of its id.
std::string SessionKeyOf(absl::string_view session_id);

// `SnapshotStore` has the contract of the functions. Thread-safe: each function
// holds the lock until it returns.
class SessionFolder {
 public:
  // The folder is `parent`/`key`; it needn't exist. `files` and `fence` outlive
  // the object.
  SessionFolder(std::string parent, std::string key, FileSystem* files,
                const Fence* fence);

  absl::Status Write(const SessionImage& image);
  absl::StatusOr<LoadedSnapshot> Load(AllocateBytes allocate);
  absl::Status Remove();
  void Forget();
  // Returns nullopt if the session has no manifest.
  std::optional<SnapshotEntry> Entry();
  // Removes the folder if it has no manifest. Ignores errors.
  void RemoveUncommitted();

 private:
  // A generation whose files are intact.
  struct Generation {
    int64_t number = 0;
    std::vector<StoredPart> parts;
  };
  // A generation that is being written.
  struct Draft {
    Generation generation;
    // The files that exist for it alone, in the order of their creation.
    std::vector<std::string> files;
  };

  std::string Path(absl::string_view name) const;
  // Returns the numbers of the manifests, the newest first.
  absl::StatusOr<std::vector<int64_t>> Numbers() const;
  // Errors: those that IsBroken describes, and others.
  absl::StatusOr<Manifest> ReadManifest(int64_t number) const;

  absl::Status PrepareWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteDraft(const SessionImage& image, Draft* draft) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<StoredPart> WritePart(const std::vector<ImageItem>& items,
                                       const PlannedPart& planned,
                                       Draft* draft) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteManifest(const Manifest& manifest, Draft* draft) const;
  bool IsKept(const std::string& sha256) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes files in this order until one can't be removed. So a part stays if
  // a manifest that names it stays.
  void Discard(const std::vector<std::string>& names) const;
  // Removes all files that no kept generation names.
  void Prune() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Fills `memory`, which has the places of the items, and verifies all parts.
  absl::Status ReadParts(const Manifest& manifest,
                         const std::vector<ImageItem>& items,
                         const std::vector<std::byte*>& memory) const;

  const std::string parent_;
  const std::string key_;
  FileSystem* const files_;
  const Fence* const fence_;
  Mutex mutex_;
  // Generations that this server wrote or loaded, the newest last; at most 2.
  std::vector<Generation> kept_ ABSL_GUARDED_BY(mutex_);
  // The highest number on the disk; nullopt if it isn't known.
  std::optional<int64_t> last_number_ ABSL_GUARDED_BY(mutex_);
  bool is_removed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad

// `SessionFolder` holds the snapshots of one session on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
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

inline constexpr size_t kKeptGenerations = 2;

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

// A snapshot that is kept under a name.
struct NamedEntry {
  std::string name;
  // Why its manifest can't be used; OK if it can. The other members are only
  // set if it is OK.
  absl::Status status;
  int64_t number = 0;  // Of the session.
  int64_t bytes = 0;   // Of its parts.
};

// A session that has a snapshot.
struct SnapshotEntry {
  std::string key;
  // Why no manifest of the session can be used; OK if one can. The other
  // members are only set if it is OK.
  absl::Status status;
  snapshots::Session head;
  int64_t fencing_number = 0;  // Of the server that wrote it.
  int64_t generation = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;              // Of tensors, programs and replies.
  std::vector<NamedEntry> named;  // Sorted by name.
};

// Returns the key of a session: the hex SHA-256 of its id.
std::string SessionKeyOf(absl::string_view session_id);

// `SessionFolder` has the snapshots of one session. SnapshotStore has the
// contract of Write, Load and Remove. Thread-safe.
class SessionFolder {
 public:
  // The folder is `parent`/`key`; it needn't exist. `files` and `fence` outlive
  // the object.
  SessionFolder(std::string parent, std::string key, FileSystem* files,
                const Fence* fence);

  absl::Status Write(const SessionImage& image);
  absl::StatusOr<LoadedSnapshot> Load(AllocateBytes allocate);
  absl::Status Remove();

  // Keeps the newest generation under `name` until DropNamed, and replaces the
  // snapshot of this name. Requires: a Write or Load of the session before;
  // `name` is as ImageTensor::name, of at most 128 bytes.
  // Errors: as Write. If the last fsync fails, the name has the snapshot before
  // or this one; after another error, it has the snapshot before.
  absl::Status KeepNamed(const std::string& name);
  // Loads the snapshot of this name as Load does, but no other one instead.
  // Requires: as KeepNamed.
  // Errors: kNotFound if there is none; kDataLoss naming the file, if one of
  // its files is broken; those of Load.
  absl::StatusOr<SessionImage> LoadNamed(const std::string& name,
                                         AllocateBytes allocate);
  // Drops the snapshot of this name. OK if there is none. Parts that only it
  // had are removed at once, or with the next generation if the session was
  // just loaded. Requires: as KeepNamed.
  // Errors: kFailedPrecondition if a later server uses the folder; the
  // system's errors. The snapshot is there or not then, and a repeat may work.
  absl::Status DropNamed(const std::string& name);

  // Frees what the folder remembers of a session that isn't in the server's
  // memory any more. Before the next Write, it must be loaded again.
  void Forget();
  // Returns nullopt if the session has no manifest.
  std::optional<SnapshotEntry> Entry();
  // Removes the files that no manifest names: the whole folder if it has no
  // manifest, otherwise the rest of a write that a crash has ended. Ignores
  // errors.
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
  // The digests of the parts that each snapshot with a name has.
  using NamedParts = std::map<std::string, std::set<std::string>>;

  std::string Path(absl::string_view name) const;
  // Returns the names of all files; none if the folder doesn't exist.
  absl::StatusOr<std::vector<std::string>> Files() const;
  // Errors: those that IsBroken describes, and others.
  absl::StatusOr<Manifest> ReadManifest(int64_t number) const;
  // Reads the manifest of this file, whatever its generation.
  absl::StatusOr<Manifest> ReadManifestFile(const std::string& file) const;
  // Reads the manifests of the snapshots with names among `files`, and adds the
  // parts of those that can be used.
  std::vector<NamedEntry> ReadNamed(const std::vector<std::string>& files,
                                    NamedParts* parts) const;

  absl::Status PrepareWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteDraft(const SessionImage& image, Draft* draft) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<StoredPart> WritePart(const std::vector<ImageItem>& items,
                                       const PlannedPart& planned,
                                       Draft* draft) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the manifest beside, and renames it to `name`. Adds the files to
  // `*created` before they may exist.
  absl::Status WriteManifest(const Manifest& manifest, const std::string& name,
                             std::vector<std::string>* created) const;
  bool IsKept(const std::string& sha256) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the part is on the disk and has its size, because an
  // operator may have removed it. Errors: the system's. It mustn't be replaced
  // then.
  absl::StatusOr<bool> Exists(const StoredPart& part) const;
  // Returns whether a snapshot with a name has this part, and the part is
  // intact. Errors: those that say nothing about the part (see IsBroken). It
  // mustn't be replaced then.
  absl::StatusOr<bool> IsNamed(const StoredPart& part) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes files in this order until a manifest can't be removed. So a part
  // stays if a manifest that names it stays.
  void Discard(const std::vector<std::string>& names) const;
  // Removes all files that neither a kept generation nor a snapshot with a name
  // has.
  void Prune() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does the same, if all generations that stay are in `kept_`.
  void PruneNamed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Returns the items of the manifest in new memory. Sets `*refused` to the
  // error of `allocate`, which isn't one of the disk.
  // Errors: the manifest's; those that IsBroken describes, and others.
  absl::StatusOr<std::vector<ImageItem>> ReadItems(
      const absl::StatusOr<Manifest>& manifest, AllocateBytes allocate,
      absl::Status* refused) const;
  // Fills `memory`, which has the places of the items, and verifies all parts.
  absl::Status ReadParts(const Manifest& manifest,
                         const std::vector<ImageItem>& items,
                         const std::vector<std::byte*>& memory) const;

  const std::string parent_;
  const std::string key_;
  FileSystem* const files_;
  const Fence* const fence_;
  Mutex mutex_;
  // Generations that this server wrote or loaded, the newest last; at most
  // kKeptGenerations.
  std::vector<Generation> kept_ ABSL_GUARDED_BY(mutex_);
  NamedParts named_ ABSL_GUARDED_BY(mutex_);
  // The highest number on the disk; nullopt if it isn't known.
  std::optional<int64_t> last_number_ ABSL_GUARDED_BY(mutex_);
  bool is_removed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad

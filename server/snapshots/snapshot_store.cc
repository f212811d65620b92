#include "server/snapshots/snapshot_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backends/core/status.h"
#include "proto/sha256.h"

namespace convgrad {
namespace {

// Keys are names of folders, so nothing else may be one.
bool IsKey(absl::string_view key) {
  return key.size() == 2 * Sha256::kBytes &&
         std::all_of(key.begin(), key.end(), [](unsigned char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

std::string ParentOf(absl::string_view folder) {
  while (absl::ConsumeSuffix(&folder, "/")) {
  }
  const size_t slash = folder.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(folder.substr(0, slash + 1));
}

// Returns the highest fencing number of a server that has written a session; 0
// if there is none.
int64_t NewestServer(const std::string& sessions, FileSystem* files) {
  int64_t newest = 0;
  const auto names = files->List(sessions);
  if (!names.ok()) return newest;
  for (const std::string& name : *names) {
    if (!IsKey(name)) continue;
    const auto entry =
        SessionFolder(sessions, name, files, /*fence=*/nullptr).Entry();
    if (entry) newest = std::max(newest, entry->fencing_number);
  }
  return newest;
}

}  // namespace

SnapshotStore::SnapshotStore(std::string folder, std::unique_ptr<Fence> fence,
                             FileSystem* files)
    : folder_(std::move(folder)), fence_(std::move(fence)), files_(files) {}

SnapshotStore::~SnapshotStore() = default;

absl::StatusOr<std::unique_ptr<SnapshotStore>> SnapshotStore::Open(
    const std::string& folder, FileSystem* files) {
  RETURN_IF_ERROR(files->CreateFolder(folder));
  // Who may not read the parent hasn't created the folder.
  const absl::Status synced = files->SyncFolder(ParentOf(folder));
  if (!absl::IsPermissionDenied(synced)) RETURN_IF_ERROR(synced);
  const std::string sessions = absl::StrCat(folder, "/sessions");
  ASSIGN_OR_RETURN(auto fence, Fence::Take(folder, files, [&] {
                     return NewestServer(sessions, files);
                   }));
  RETURN_IF_ERROR(files->CreateFolder(sessions));
  RETURN_IF_ERROR(files->SyncFolder(folder));
  std::unique_ptr<SnapshotStore> store(
      new SnapshotStore(sessions, std::move(fence), files));
  RETURN_IF_ERROR(store->RemoveUncommitted());
  return store;
}

absl::Status SnapshotStore::Write(const SessionImage& image) {
  return FolderOf(SessionKeyOf(image.head.id()))->Write(image);
}

absl::StatusOr<std::vector<SnapshotEntry>> SnapshotStore::List() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(folder_));
  std::vector<SnapshotEntry> entries;
  for (const std::string& name : names) {
    if (!IsKey(name)) continue;
    if (auto entry = FolderOf(name)->Entry()) {
      entries.push_back(*std::move(entry));
    }
  }
  return entries;
}

absl::StatusOr<LoadedSnapshot> SnapshotStore::Load(absl::string_view key,
                                                   AllocateBytes allocate) {
  if (!IsKey(key)) return absl::NotFoundError("no key of a session");
  return FolderOf(key)->Load(allocate);
}

absl::Status SnapshotStore::Remove(absl::string_view key) {
  if (!IsKey(key)) return absl::OkStatus();
  RETURN_IF_ERROR(FolderOf(key)->Remove());
  const MutexLock lock(&mutex_);
  const auto found = folders_.find(key);
  if (found != folders_.end()) folders_.erase(found);
  return absl::OkStatus();
}

absl::Status SnapshotStore::RemoveUncommitted() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(folder_));
  for (const std::string& name : names) {
    if (IsKey(name)) {
      SessionFolder(folder_, name, files_, fence_.get()).RemoveUncommitted();
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<SessionFolder> SnapshotStore::FolderOf(absl::string_view key) {
  const MutexLock lock(&mutex_);
  auto& folder = folders_[std::string(key)];
  if (folder == nullptr) {
    folder = std::make_shared<SessionFolder>(folder_, std::string(key), files_,
                                             fence_.get());
  }
  return folder;
}

}  // namespace convgrad

// Implements how a session's folder keeps snapshots under names: a copy of the
// newest generation's manifest has the name, and its parts stay as long as the
// copy.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/snapshots/image_items.h"
#include "server/snapshots/session_files.h"
#include "server/snapshots/session_folder.h"
#include "server/snapshots/verified_file.h"

namespace convgrad {

absl::Status SessionFolder::KeepNamed(const std::string& name) {
  const MutexLock lock(&mutex_);
  RETURN_IF_ERROR(fence_->Check());
  if (is_removed_ || kept_.empty()) {
    return absl::NotFoundError("the session has no snapshot to keep");
  }
  const Generation& newest = kept_.back();
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(newest.number));
  std::set<std::string> parts;
  for (const StoredPart& part : newest.parts) parts.insert(part.sha256);
  std::vector<std::string> created;
  const absl::Status written =
      WriteManifest(manifest, NamedManifest(name), &created);
  if (written.ok()) {
    named_[name] = std::move(parts);
  } else if (created.size() > 1) {
    // After a crash, the name may have the manifest before or this one.
    named_[name].merge(parts);
  }
  if (!fence_->Check().ok()) return written;
  if (!written.ok() && !created.empty()) Discard({created.front()});
  PruneNamed();
  return written;
}

absl::StatusOr<SessionImage> SessionFolder::LoadNamed(const std::string& name,
                                                      AllocateBytes allocate) {
  const MutexLock lock(&mutex_);
  const std::string file = NamedManifest(name);
  auto manifest = ReadManifestFile(file);
  if (absl::IsNotFound(manifest.status())) return manifest.status();
  absl::Status refused;
  const auto items = ReadItems(manifest, allocate, &refused);
  if (!refused.ok()) return refused;
  if (IsBroken(items.status())) {
    return absl::DataLossError(
        absl::StrCat(Path(file), ": ", items.status().message()));
  }
  RETURN_IF_ERROR(items.status());
  SetItems(*items, &manifest->image);
  return std::move(manifest->image);
}

absl::Status SessionFolder::DropNamed(const std::string& name) {
  const MutexLock lock(&mutex_);
  RETURN_IF_ERROR(fence_->Check());
  const absl::Status removed = files_->Unlink(Path(NamedManifest(name)));
  if (!absl::IsNotFound(removed)) RETURN_IF_ERROR(removed);
  RETURN_IF_ERROR(files_->SyncFolder(Path("")));
  named_.erase(name);
  if (fence_->Check().ok()) PruneNamed();
  return absl::OkStatus();
}

void SessionFolder::PruneNamed() const {
  // The generation before the one that was loaded isn't in kept_, and stays
  // until there is a new one.
  if (kept_.size() == kKeptGenerations) Prune();
}

std::vector<NamedEntry> SessionFolder::ReadNamed(
    const std::vector<std::string>& files, NamedParts* parts) const {
  std::vector<NamedEntry> entries;
  for (const std::string& file : files) {
    const auto name = SnapshotName(file);
    if (!name) continue;
    NamedEntry& entry = entries.emplace_back();
    entry.name = *name;
    const auto manifest = ReadManifestFile(file);
    entry.status = manifest.status();
    if (!manifest.ok()) continue;
    entry.number = manifest->image.head.number();
    std::set<std::string>& digests = (*parts)[*name];
    for (const ManifestPart& part : manifest->parts) {
      entry.bytes += part.bytes;
      digests.insert(part.sha256);
    }
  }
  return entries;
}

absl::StatusOr<bool> SessionFolder::IsNamed(const StoredPart& part) const {
  const bool is_named = std::any_of(
      named_.begin(), named_.end(),
      [&](const auto& named) { return named.second.contains(part.sha256); });
  if (!is_named) return false;
  // This server may not have read the part yet.
  absl::Status verified =
      VerifyFile(Path(PartName(part.sha256)), part.bytes, part.sha256, files_);
  if (verified.ok() || IsBroken(verified)) return verified.ok();
  return verified;
}

}  // namespace convgrad

// Implements how a session's folder writes its next generation.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/sha256.h"
#include "server/snapshots/session_files.h"
#include "server/snapshots/session_folder.h"
#include "server/snapshots/verified_file.h"

namespace convgrad {
absl::Status SessionFolder::Write(const SessionImage& image) {
  RETURN_IF_ERROR(CheckImage(image));
  const MutexLock lock(&mutex_);
  RETURN_IF_ERROR(fence_->Check());
  RETURN_IF_ERROR(PrepareWrite());
  Draft draft;
  // A number isn't used again, even if the generation fails.
  draft.generation.number = ++*last_number_;
  const absl::Status written = WriteDraft(image, &draft);
  if (!written.ok()) {
    std::reverse(draft.files.begin(), draft.files.end());
    if (fence_->Check().ok()) Discard(draft.files);
    return written;
  }
  if (kept_.size() == kKeptGenerations) kept_.erase(kept_.begin());
  kept_.push_back(std::move(draft.generation));
  if (fence_->Check().ok()) Prune();
  return absl::OkStatus();
}

absl::Status SessionFolder::PrepareWrite() {
  if (is_removed_) {
    return absl::NotFoundError("the session's snapshots are removed");
  }
  if (last_number_) return absl::OkStatus();
  RETURN_IF_ERROR(files_->CreateFolder(Path("")));
  RETURN_IF_ERROR(files_->SyncFolder(parent_));
  ASSIGN_OR_RETURN(const std::vector<std::string> files, Files());
  const std::vector<int64_t> numbers = ManifestNumbers(files);
  if (!numbers.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", key_, " has generation ", numbers.front(),
                     ", which must be loaded before it is replaced"));
  }
  last_number_ = 0;
  return absl::OkStatus();
}

absl::Status SessionFolder::WriteDraft(const SessionImage& image,
                                       Draft* draft) const {
  const std::vector<ImageItem> items = ItemsOf(image);
  const std::vector<StoredPart> none;
  const std::vector<StoredPart>& before =
      kept_.empty() ? none : kept_.back().parts;
  Manifest manifest;
  manifest.image = image;
  manifest.generation = draft->generation.number;
  manifest.fencing_number = fence_->number();
  manifest.part_of.resize(items.size());
  for (const PlannedPart& planned : PlanParts(items, before)) {
    for (const size_t item : planned.items) {
      manifest.part_of[item] = manifest.parts.size();
    }
    ASSIGN_OR_RETURN(StoredPart part, WritePart(items, planned, draft));
    manifest.parts.push_back({part.sha256, part.bytes});
    draft->generation.parts.push_back(std::move(part));
  }
  return WriteManifest(manifest, ManifestName(manifest.generation),
                       &draft->files);
}

absl::StatusOr<StoredPart> SessionFolder::WritePart(
    const std::vector<ImageItem>& items, const PlannedPart& planned,
    Draft* draft) const {
  if (planned.stored != nullptr) {
    ASSIGN_OR_RETURN(const bool exists, Exists(*planned.stored));
    if (exists) return *planned.stored;
  }
  const PartContent content = MakePart(items, planned.items);
  StoredPart part = {content.sha256, content.bytes, {}};
  for (const size_t i : planned.items) {
    part.items.push_back(StoredItemOf(items[i]));
  }
  if (IsKept(content.sha256)) {
    ASSIGN_OR_RETURN(const bool exists, Exists(part));
    if (exists) return part;
  }
  ASSIGN_OR_RETURN(const bool is_named, IsNamed(part));
  if (is_named) return part;
  const std::string name = PartName(content.sha256);
  draft->files.push_back(name);
  RETURN_IF_ERROR(
      WriteVerifiedFile(Path(name), content.pieces, content.sha256, files_));
  return part;
}

absl::Status SessionFolder::WriteManifest(
    const Manifest& manifest, const std::string& name,
    std::vector<std::string>* created) const {
  const std::string content = EncodeManifest(manifest);
  if (std::ssize(content) > kMaxManifestBytes) {
    return InvalidField(Reason::kLimitExceeded, "manifest",
                        absl::StrCat(content.size(), " bytes"),
                        absl::StrCat("at most ", kMaxManifestBytes));
  }
  // No snapshot with a name has this file.
  const std::string beside =
      absl::StrCat(ManifestName(manifest.generation), ".tmp");
  created->push_back(beside);
  RETURN_IF_ERROR(WriteVerifiedFile(Path(beside), {AsBytes(content)},
                                    Sha256Of(content), files_));
  // A manifest that is on the disk must have its parts there.
  RETURN_IF_ERROR(files_->SyncFolder(Path("")));
  RETURN_IF_ERROR(fence_->Check());
  created->push_back(name);
  RETURN_IF_ERROR(files_->Rename(Path(beside), Path(name)));
  return files_->SyncFolder(Path(""));
}

bool SessionFolder::IsKept(const std::string& sha256) const {
  for (const Generation& generation : kept_) {
    for (const StoredPart& part : generation.parts) {
      if (part.sha256 == sha256) return true;
    }
  }
  return false;
}

absl::StatusOr<bool> SessionFolder::Exists(const StoredPart& part) const {
  const auto reader = HashedReader::Open(Path(PartName(part.sha256)), files_);
  if (reader.ok()) return reader->CheckSize(part.bytes).ok();
  if (absl::IsNotFound(reader.status())) return false;
  return reader.status();
}

void SessionFolder::Prune() const {
  const auto names = files_->List(Path(""));
  if (!names.ok()) return;  // The next generation tries again.
  std::set<std::string> named;
  for (const Generation& generation : kept_) {
    named.insert(ManifestName(generation.number));
    for (const StoredPart& part : generation.parts) {
      named.insert(PartName(part.sha256));
    }
  }
  for (const auto& [name, parts] : named_) {
    for (const std::string& sha256 : parts) named.insert(PartName(sha256));
  }
  std::vector<std::string> unnamed;
  for (const bool manifests : {true, false}) {
    for (const std::string& name : *names) {
      // DropNamed alone removes the others, because it syncs the folder before
      // it removes parts.
      if (named.count(name) == 0 && !SnapshotName(name).has_value() &&
          ManifestNumber(name).has_value() == manifests) {
        unnamed.push_back(name);
      }
    }
  }
  Discard(unnamed);
}

}  // namespace convgrad

#include "server/snapshots/session_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/sha256.h"
#include "server/snapshots/session_files.h"
#include "server/snapshots/verified_file.h"

namespace convgrad {
namespace {

constexpr absl::string_view kNamedPrefix = "named-";

bool IsManifest(absl::string_view name) {
  return ManifestNumber(name).has_value() || SnapshotName(name).has_value();
}

}  // namespace

std::string SessionKeyOf(absl::string_view session_id) {
  return absl::BytesToHexString(Sha256Of(session_id));
}

std::string ManifestName(int64_t number) {
  return absl::StrCat("manifest-", number);
}

std::optional<int64_t> ManifestNumber(absl::string_view name) {
  int64_t number = 0;
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, "manifest-") ||
      !absl::SimpleAtoi(digits, &number) || number < 1 ||
      number >= kMostCount || ManifestName(number) != name) {
    return std::nullopt;
  }
  return number;
}

std::string PartName(absl::string_view sha256) {
  return absl::StrCat(absl::BytesToHexString(sha256), ".safetensors");
}

std::string NamedManifest(absl::string_view name) {
  return absl::StrCat(kNamedPrefix, name);
}

std::optional<std::string> SnapshotName(absl::string_view file) {
  if (!absl::ConsumePrefix(&file, kNamedPrefix) || file.empty()) {
    return std::nullopt;
  }
  return std::string(file);
}

bool IsBroken(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) ||
         absl::IsInvalidArgument(status);
}

SessionFolder::SessionFolder(std::string parent, std::string key,
                             FileSystem* files, const Fence* fence)
    : parent_(std::move(parent)),
      key_(std::move(key)),
      files_(files),
      fence_(fence) {}

std::string SessionFolder::Path(absl::string_view name) const {
  return absl::StrCat(parent_, "/", key_, "/", name);
}

absl::StatusOr<std::vector<std::string>> SessionFolder::Files() const {
  auto names = files_->List(Path(""));
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  return names;
}

std::vector<int64_t> ManifestNumbers(const std::vector<std::string>& files) {
  std::vector<int64_t> numbers;
  for (const std::string& name : files) {
    if (const auto number = ManifestNumber(name)) numbers.push_back(*number);
  }
  std::sort(numbers.rbegin(), numbers.rend());
  return numbers;
}

absl::StatusOr<Manifest> SessionFolder::ReadManifest(int64_t number) const {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifestFile(ManifestName(number)));
  if (manifest.generation == number) return manifest;
  return Malformed(absl::StrCat(Path(ManifestName(number)), ": generation"),
                   manifest.generation,
                   absl::StrCat(number, ", as its name says"));
}

absl::StatusOr<Manifest> SessionFolder::ReadManifestFile(
    const std::string& file) const {
  ASSIGN_OR_RETURN(const std::string content,
                   ReadWholeFile(Path(file), kMaxManifestBytes, files_));
  absl::StatusOr<Manifest> manifest = DecodeManifest(content);
  if (!manifest.ok()) {
    return WithFieldPrefix(manifest.status(), absl::StrCat(Path(file), ": "));
  }
  if (SessionKeyOf(manifest->image.head.id()) == key_) return manifest;
  return Malformed(absl::StrCat(Path(file), ": session.id"), "another session",
                   "the session of the folder");
}

std::optional<SnapshotEntry> SessionFolder::Entry() {
  const MutexLock lock(&mutex_);
  const auto files = Files();
  SnapshotEntry entry;
  entry.key = key_;
  entry.status = files.status();
  if (!files.ok()) return entry;
  const std::vector<int64_t> numbers = ManifestNumbers(*files);
  for (const int64_t number : numbers) {
    auto manifest = ReadManifest(number);
    entry.status = manifest.status();
    if (IsBroken(entry.status)) continue;
    if (!entry.status.ok()) return entry;
    entry.head = std::move(manifest->image.head);
    entry.fencing_number = manifest->fencing_number;
    entry.generation = number;
    entry.tensors = std::ssize(manifest->image.tensors);
    for (const ManifestPart& part : manifest->parts) entry.bytes += part.bytes;
    NamedParts parts;
    entry.named = ReadNamed(*files, &parts);
    return entry;
  }
  if (numbers.empty()) return std::nullopt;
  return entry;
}

void SessionFolder::Forget() {
  const MutexLock lock(&mutex_);
  kept_.clear();
  named_.clear();
  last_number_.reset();
}

absl::Status SessionFolder::Remove() {
  const MutexLock lock(&mutex_);
  RETURN_IF_ERROR(fence_->Check());
  is_removed_ = true;
  const auto names = files_->List(Path(""));
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  // Manifests first: a session without parts would look like one that is lost.
  for (const std::string& name : *names) {
    if (IsManifest(name)) RETURN_IF_ERROR(files_->Unlink(Path(name)));
  }
  RETURN_IF_ERROR(files_->SyncFolder(Path("")));
  absl::Status removed;
  for (const std::string& name : *names) {
    if (!IsManifest(name)) removed.Update(files_->Unlink(Path(name)));
  }
  RETURN_IF_ERROR(removed);
  RETURN_IF_ERROR(files_->RemoveFolder(Path("")));
  return files_->SyncFolder(parent_);
}

void SessionFolder::RemoveUncommitted() {
  const MutexLock lock(&mutex_);
  const auto names = files_->List(Path(""));
  if (!names.ok()) return;
  if (ManifestNumbers(*names).empty()) {
    Discard(*names);
    files_->RemoveFolder(Path("")).IgnoreError();
    return;
  }
  std::set<std::string> committed;
  for (const std::string& name : *names) {
    if (!IsManifest(name)) continue;
    const auto manifest = ReadManifestFile(name);
    if (!manifest.ok()) return;  // Nobody knows the parts that it names.
    committed.insert(name);
    for (const ManifestPart& part : manifest->parts) {
      committed.insert(PartName(part.sha256));
    }
  }
  std::vector<std::string> uncommitted;
  for (const std::string& name : *names) {
    if (!committed.contains(name)) uncommitted.push_back(name);
  }
  Discard(uncommitted);
}

void SessionFolder::Discard(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    const absl::Status removed = files_->Unlink(Path(name));
    if (removed.ok() || absl::IsNotFound(removed)) continue;
    if (IsManifest(name)) return;
  }
}

}  // namespace convgrad

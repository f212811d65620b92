// Implements how a session's folder loads its newest intact generation.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "server/snapshots/safetensors.h"
#include "server/snapshots/session_files.h"
#include "server/snapshots/session_folder.h"
#include "server/snapshots/verified_file.h"

namespace convgrad {
namespace {

using Items = std::vector<ImageItem>;

// Reads the header of the part at `path` and checks that it is the one that
// Write makes of these items.
absl::Status ReadHeader(const std::string& path, const Items& items,
                        const std::vector<size_t>& part, HashedReader* reader) {
  const std::string expected = MakeSafetensorsHeader(items, part);
  std::string header(expected.size(), '\0');
  RETURN_IF_ERROR(reader->Read(
      {reinterpret_cast<std::byte*>(header.data()), header.size()}));
  if (header == expected) return absl::OkStatus();
  return Malformed(absl::StrCat(path, ": header"), "other tensors",
                   "those of the manifest");
}

// Checks that the files exist and have their sizes, so that memory is only
// taken for bytes that the disk has.
absl::Status CheckSizes(const Manifest& manifest, const std::string& folder,
                        FileSystem* files) {
  for (const ManifestPart& part : manifest.parts) {
    const std::string path = absl::StrCat(folder, PartName(part.sha256));
    ASSIGN_OR_RETURN(const HashedReader reader,
                     HashedReader::Open(path, files));
    RETURN_IF_ERROR(reader.CheckSize(part.bytes));
  }
  return absl::OkStatus();
}

// Takes memory for the items. Returns where each is.
absl::StatusOr<std::vector<std::byte*>> Allocate(AllocateBytes allocate,
                                                 Items* items) {
  std::vector<std::byte*> memory;
  for (ImageItem& item : *items) {
    ASSIGN_OR_RETURN(WritableBytes bytes, allocate(item.bytes()));
    memory.push_back(bytes.data);
    item.data = {std::move(bytes.owner),
                 absl::MakeConstSpan(bytes.data, item.bytes())};
  }
  return memory;
}

// Returns the parts with the items that are now in memory.
std::vector<StoredPart> StoredPartsOf(const Manifest& manifest,
                                      const Items& items) {
  std::vector<StoredPart> parts;
  for (const ManifestPart& part : manifest.parts) {
    parts.push_back({part.sha256, part.bytes, {}});
  }
  for (size_t i = 0; i < items.size(); ++i) {
    parts[manifest.part_of[i]].items.push_back(StoredItemOf(items[i]));
  }
  return parts;
}

}  // namespace

absl::StatusOr<LoadedSnapshot> SessionFolder::Load(AllocateBytes allocate) {
  const MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const std::vector<std::string> files, Files());
  const std::vector<int64_t> numbers = ManifestNumbers(files);
  if (numbers.empty()) {
    return absl::NotFoundError(
        absl::StrCat("session ", key_, " has no snapshot"));
  }
  LoadedSnapshot loaded;
  for (const int64_t number : numbers) {
    auto manifest = ReadManifest(number);
    absl::Status refused;
    const auto items = ReadItems(manifest, allocate, &refused);
    if (!refused.ok()) return refused;
    if (IsBroken(items.status())) {
      loaded.broken.push_back(absl::StrCat("session ", key_, " generation ",
                                           number, ": ",
                                           items.status().message()));
      continue;
    }
    RETURN_IF_ERROR(items.status());
    NamedParts named;
    for (const NamedEntry& entry : ReadNamed(files, &named)) {
      // Its parts mustn't be removed.
      if (!entry.status.ok() && !IsBroken(entry.status)) return entry.status;
    }
    SetItems(*items, &manifest->image);
    kept_ = {{number, StoredPartsOf(*manifest, *items)}};
    named_ = std::move(named);
    last_number_ = numbers.front();
    loaded.image = std::move(manifest->image);
    loaded.generation = number;
    return loaded;
  }
  return absl::DataLossError(absl::StrJoin(loaded.broken, "; "));
}

absl::StatusOr<Items> SessionFolder::ReadItems(
    const absl::StatusOr<Manifest>& manifest, AllocateBytes allocate,
    absl::Status* refused) const {
  RETURN_IF_ERROR(manifest.status());
  RETURN_IF_ERROR(CheckSizes(*manifest, Path(""), files_));
  Items items = ItemsOf(manifest->image);
  const auto memory = Allocate(allocate, &items);
  if (!memory.ok()) return *refused = memory.status();
  RETURN_IF_ERROR(ReadParts(*manifest, items, *memory));
  return items;
}

absl::Status SessionFolder::ReadParts(
    const Manifest& manifest, const Items& items,
    const std::vector<std::byte*>& memory) const {
  const auto by_part =
      ItemsByPart(items, manifest.part_of, manifest.parts.size());
  for (size_t i = 0; i < by_part.size(); ++i) {
    const std::string path = Path(PartName(manifest.parts[i].sha256));
    ASSIGN_OR_RETURN(HashedReader reader, HashedReader::Open(path, files_));
    RETURN_IF_ERROR(ReadHeader(path, items, by_part[i], &reader));
    for (const size_t item : by_part[i]) {
      RETURN_IF_ERROR(
          reader.Read({memory[item], items[item].data.bytes.size()}));
    }
    RETURN_IF_ERROR(reader.Finish(manifest.parts[i].sha256));
  }
  return absl::OkStatus();
}

}  // namespace convgrad

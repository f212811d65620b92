// These functions name the files of a session's folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// The count from which numbers, epochs and generations are refused, so that
// increasing them can't overflow.
inline constexpr int64_t kMostCount = int64_t{1} << 62;

// Returns e.g. "manifest-12".
std::string ManifestName(int64_t number);
// Returns the number of such a name, nullopt for any other name.
std::optional<int64_t> ManifestNumber(absl::string_view name);
// Returns the numbers of the manifests among `files`, the newest first.
std::vector<int64_t> ManifestNumbers(const std::vector<std::string>& files);
// Returns the name of the manifest of the snapshot `name`, e.g. "named-best".
std::string NamedManifest(absl::string_view name);
// Returns the snapshot's name in such a file's name, nullopt for any other.
std::optional<std::string> SnapshotName(absl::string_view file);
// Returns the name of the part with this SHA-256.
std::string PartName(absl::string_view sha256);

// Returns whether a read failed for what the disk has, so that an older
// generation may be used instead.
bool IsBroken(const absl::Status& status);

}  // namespace convgrad

// `Manifest` is the content of the file that commits a generation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/snapshots/session_image.h"

namespace convgrad {

inline constexpr int kSnapshotFormatVersion = 1;

// A file that holds items of an image. Value type.
struct ManifestPart {
  std::string sha256;  // 32 raw bytes.
  int64_t bytes = 0;
};

// Value type.
struct Manifest {
  int64_t fencing_number = 0;
  int64_t generation = 0;
  std::vector<ManifestPart> parts;
  // By the item of ItemsOf(image): the index of its part.
  std::vector<size_t> part_of;
  // The bytes of its items have the right size, but no address and no owner.
  SessionImage image;
};

// Returns the file. Reads no item.
// Requires: CheckImage(manifest.image) is OK; parts and part_of fit.
std::string EncodeManifest(const Manifest& manifest);

// Errors: kInvalidArgument, for a file that EncodeManifest doesn't return;
// kUnimplemented for a later version.
absl::StatusOr<Manifest> DecodeManifest(absl::string_view file);

}  // namespace convgrad

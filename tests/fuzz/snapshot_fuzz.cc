// Fuzzes what the server reads from its folder of snapshots: manifests, and the
// headers of parts. The SHA-256 of a manifest is made to fit, so that it hides
// nothing.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/sha256.h"
#include "server/snapshots/image_items.h"
#include "server/snapshots/manifest.h"
#include "server/snapshots/safetensors.h"
#include "tests/fuzz/require.h"

namespace convgrad::fuzz {
namespace {

void TryManifest(absl::string_view text) {
  std::string file(text);
  file += Sha256Of(text);
  const auto manifest = DecodeManifest(file);
  if (!manifest.ok()) return RequireRefusal(manifest.status());
  const std::vector<ImageItem> items = ItemsOf(manifest->image);
  Require(items.size() == manifest->part_of.size(), "each item has a part");
  std::vector<int64_t> left;
  for (const ManifestPart& part : manifest->parts) left.push_back(part.bytes);
  for (size_t i = 0; i < items.size(); ++i) {
    int64_t& part = left.at(manifest->part_of[i]);
    part -= items[i].bytes();
    Require(items[i].bytes() >= 0 && part >= 0, "items fit into their parts");
  }
  const std::string again = EncodeManifest(*manifest);
  const auto decoded = DecodeManifest(again);
  Require(decoded.ok() && EncodeManifest(*decoded) == again,
          "a manifest is read as it was written");
}

void TryPart(absl::string_view file) {
  const absl::string_view length = file.substr(0, kSafetensorsLengthBytes);
  if (static_cast<int64_t>(length.size()) < kSafetensorsLengthBytes) return;
  const auto size = static_cast<int64_t>(file.size());
  const auto header_bytes = ReadSafetensorsLength(length, size);
  if (!header_bytes.ok()) return RequireRefusal(header_bytes.status());
  const int64_t data_bytes = size - kSafetensorsLengthBytes - *header_bytes;
  Require(*header_bytes >= 0 && data_bytes >= 0, "the header is in the file");
  const auto entries = ParseSafetensorsHeader(
      file.substr(kSafetensorsLengthBytes, *header_bytes), data_bytes);
  if (!entries.ok()) return RequireRefusal(entries.status());
  int64_t end = 0;
  for (const SafetensorsEntry& entry : *entries) {
    Require(entry.begin == end && entry.end >= end, "tensors leave no hole");
    end = entry.end;
  }
  Require(end == data_bytes, "tensors have all bytes");
}

}  // namespace
}  // namespace convgrad::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  if (data[0] % 2 == 0) {
    convgrad::fuzz::TryManifest(text);
  } else {
    convgrad::fuzz::TryPart(text);
  }
  return 0;
}

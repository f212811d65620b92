// Fuzzes the manifests that the server reads from its folder of snapshots. The
// SHA-256 of a manifest is made to fit, so that it hides nothing.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/sha256.h"
#include "server/snapshots/image_items.h"
#include "server/snapshots/manifest.h"
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

}  // namespace
}  // namespace convgrad::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  convgrad::fuzz::TryManifest({reinterpret_cast<const char*>(data), size});
  return 0;
}

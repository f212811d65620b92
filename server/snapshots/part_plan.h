// `PlanParts` decides which items of an image share a file, and which files of
// the generation before are used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/snapshots/image_items.h"
#include "server/snapshots/verified_file.h"

namespace convgrad {

// An item of a part that is on the disk, without its bytes. Value type.
struct StoredItem {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  // A weak pointer keeps no bytes, but keeps another owner from looking the
  // same.
  std::weak_ptr<const void> owner;
  const std::byte* address = nullptr;
  int64_t bytes = 0;
};

// A part that is on the disk. Value type.
struct StoredPart {
  std::string sha256;
  int64_t bytes = 0;
  std::vector<StoredItem> items;
};

// Items of an image that share a file. Value type.
struct PlannedPart {
  // Indices, in the order in which the file has them.
  std::vector<size_t> items;
  // The part on the disk that has exactly these items; null if there is none.
  const StoredPart* stored = nullptr;
};

// An item of at least this size has a part of its own. A smaller part is filled
// until it has as many bytes, because each part costs an fsync.
inline constexpr int64_t kPartBytes = int64_t{4} << 20;

// Returns the item without its bytes.
StoredItem StoredItemOf(const ImageItem& item);

// Returns parts with all of `items`, each once. A part of `before` is used
// again if all of its items are unchanged: the owners of the bytes tell,
// nothing is read. Unchanged items of other parts come into parts of their own,
// so that the next generation can use these again. The result points into
// `before`.
std::vector<PlannedPart> PlanParts(const std::vector<ImageItem>& items,
                                   const std::vector<StoredPart>& before);

// Returns the items of each part in the order of the file. Requires: part_of
// has an index below `parts` for each item.
std::vector<std::vector<size_t>> ItemsByPart(
    const std::vector<ImageItem>& items, const std::vector<size_t>& part_of,
    size_t parts);

// The content of a part. Points into the items.
struct PartContent {
  // Behind the header, as the pieces have it.
  std::unique_ptr<const std::string> header;
  Pieces pieces;
  std::string sha256;
  int64_t bytes = 0;
};

// Returns the content of a part with these items. Reads all of them.
PartContent MakePart(const std::vector<ImageItem>& items,
                     const std::vector<size_t>& part);

}  // namespace convgrad

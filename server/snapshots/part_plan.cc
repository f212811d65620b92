#include "server/snapshots/part_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/string_view.h"
#include "server/snapshots/safetensors.h"

namespace convgrad {
namespace {

// A smaller part isn't used again without reading it: otherwise a session that
// adds small tensors would gather small files.
constexpr int64_t kLeastReused = kPartBytes / 4;

bool IsSame(const StoredItem& stored, const ImageItem& item) {
  const auto& owner = item.data.owner;
  return owner != nullptr && !stored.owner.owner_before(owner) &&
         !owner.owner_before(stored.owner) &&
         stored.address == item.data.bytes.data() &&
         stored.bytes == item.bytes() && stored.name == item.name &&
         stored.dtype == item.dtype && stored.shape == item.shape;
}

// Adds parts of these items.
void Pack(const std::vector<ImageItem>& items,
          const std::vector<size_t>& indices, std::vector<PlannedPart>* parts) {
  PlannedPart small;
  int64_t small_bytes = 0;
  for (const size_t i : indices) {
    if (items[i].bytes() >= kPartBytes) {
      parts->push_back({{i}});
      continue;
    }
    small.items.push_back(i);
    small_bytes += items[i].bytes();
    if (small_bytes < kPartBytes) continue;
    parts->push_back(std::exchange(small, {}));
    small_bytes = 0;
  }
  if (!small.items.empty()) parts->push_back(std::move(small));
}

// Puts large elements first, so that each tensor is aligned to its elements.
void SortItems(const std::vector<ImageItem>& items, std::vector<size_t>* part) {
  const auto key = [&](size_t i) {
    return std::tuple(-items[i].element_bytes,
                      absl::string_view(items[i].name));
  };
  std::sort(part->begin(), part->end(),
            [&](size_t a, size_t b) { return key(a) < key(b); });
}

}  // namespace

StoredItem StoredItemOf(const ImageItem& item) {
  return {item.name,
          item.dtype,
          item.shape,
          item.data.owner,
          item.data.bytes.data(),
          item.bytes()};
}

std::vector<PlannedPart> PlanParts(const std::vector<ImageItem>& items,
                                   const std::vector<StoredPart>& before) {
  std::vector<PlannedPart> parts;
  std::map<absl::string_view, size_t> by_name;
  for (size_t i = 0; i < items.size(); ++i) by_name[items[i].name] = i;
  std::vector<bool> is_stored(items.size(), false);
  std::vector<size_t> unchanged;
  for (const StoredPart& part : before) {
    std::vector<size_t> same;
    for (const StoredItem& item : part.items) {
      const auto found = by_name.find(item.name);
      if (found == by_name.end() || !IsSame(item, items[found->second])) {
        continue;
      }
      same.push_back(found->second);
      is_stored[found->second] = true;
    }
    if (same.size() == part.items.size() && part.bytes >= kLeastReused) {
      parts.push_back({std::move(same), &part});
    } else {
      unchanged.insert(unchanged.end(), same.begin(), same.end());
    }
  }
  std::vector<size_t> changed;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!is_stored[i]) changed.push_back(i);
  }
  std::sort(unchanged.begin(), unchanged.end());
  Pack(items, unchanged, &parts);
  Pack(items, changed, &parts);
  for (PlannedPart& part : parts) SortItems(items, &part.items);
  return parts;
}

std::vector<std::vector<size_t>> ItemsByPart(
    const std::vector<ImageItem>& items, const std::vector<size_t>& part_of,
    size_t parts) {
  std::vector<std::vector<size_t>> by_part(parts);
  for (size_t i = 0; i < items.size(); ++i) by_part[part_of[i]].push_back(i);
  for (auto& part : by_part) SortItems(items, &part);
  return by_part;
}

PartContent MakePart(const std::vector<ImageItem>& items,
                     const std::vector<size_t>& part) {
  PartContent content;
  content.header =
      std::make_unique<const std::string>(MakeSafetensorsHeader(items, part));
  content.pieces.push_back(AsBytes(*content.header));
  for (const size_t i : part) content.pieces.push_back(items[i].data.bytes);
  content.bytes = SizeOf(content.pieces);
  content.sha256 = DigestOf(content.pieces);
  return content;
}

}  // namespace convgrad

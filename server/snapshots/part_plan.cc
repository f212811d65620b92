#include "server/snapshots/part_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/string_view.h"

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

// Finds items by their names and remembers which have a part.
class Items {
 public:
  explicit Items(const std::vector<ImageItem>& items)
      : items_(items), is_taken_(items.size(), false) {
    for (size_t i = 0; i < items.size(); ++i) by_name_[items[i].name] = i;
  }

  // Returns the indices of those of `stored` that are unchanged.
  std::vector<size_t> Unchanged(const std::vector<StoredItem>& stored) const {
    std::vector<size_t> unchanged;
    for (const StoredItem& item : stored) {
      const auto found = by_name_.find(item.name);
      if (found != by_name_.end() && IsSame(item, items_[found->second])) {
        unchanged.push_back(found->second);
      }
    }
    return unchanged;
  }
  void Take(const std::vector<size_t>& taken) {
    for (const size_t i : taken) is_taken_[i] = true;
  }
  // Returns the indices of those that weren't taken, in their order.
  std::vector<size_t> Left() const {
    std::vector<size_t> left;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!is_taken_[i]) left.push_back(i);
    }
    return left;
  }

 private:
  const std::vector<ImageItem>& items_;
  std::map<absl::string_view, size_t> by_name_;
  std::vector<bool> is_taken_;
};

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
    return std::tuple(-*SafetensorsElementBytes(items[i].dtype),
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
  Items left(items);
  std::vector<size_t> unchanged;
  for (const StoredPart& part : before) {
    std::vector<size_t> same = left.Unchanged(part.items);
    left.Take(same);
    if (same.size() == part.items.size() && part.bytes >= kLeastReused) {
      parts.push_back({std::move(same), &part});
    } else {
      unchanged.insert(unchanged.end(), same.begin(), same.end());
    }
  }
  const std::vector<size_t> changed = left.Left();
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

std::vector<SafetensorsEntry> EntriesOf(const std::vector<ImageItem>& items,
                                        const std::vector<size_t>& part) {
  std::vector<SafetensorsEntry> entries;
  int64_t offset = 0;
  for (const size_t i : part) {
    const int64_t end = offset + items[i].bytes();
    entries.push_back(
        {items[i].name, items[i].dtype, items[i].shape, offset, end});
    offset = end;
  }
  return entries;
}

PartContent MakePart(const std::vector<ImageItem>& items,
                     const std::vector<size_t>& part) {
  PartContent content;
  content.header = std::make_unique<const std::string>(
      MakeSafetensorsHeader(EntriesOf(items, part)));
  content.pieces.push_back(AsBytes(*content.header));
  for (const size_t i : part) content.pieces.push_back(items[i].data.bytes);
  for (const auto& piece : content.pieces) {
    content.bytes += static_cast<int64_t>(piece.size());
  }
  content.sha256 = DigestOf(content.pieces);
  return content;
}

}  // namespace convgrad

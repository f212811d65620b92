#include "proto/stream_slices.h"

#include <algorithm>
#include <utility>

namespace convgrad {
namespace {

constexpr int64_t kSliceBytes = int64_t{16} << 20;

int64_t DefaultItems(const Operation& operation) {
  const int64_t target = std::max(kSliceBytes, AddendBytes(operation));
  return std::max<int64_t>(target / std::max<int64_t>(ItemBytes(operation), 1),
                           1);
}

}  // namespace

ByteRange FrameAt(const ByteRange& range, int64_t begin) {
  return {begin, std::min(range.end, begin + kMaxFrameBytes)};
}

BatchSlices StreamSlices(std::shared_ptr<const Operation> operation,
                         int64_t slice_items) {
  const int64_t items =
      slice_items == 0 ? DefaultItems(*operation) : slice_items;
  return BatchSlices(std::move(operation), items);
}

}  // namespace convgrad

#include "backends/kernels/copies/reorder_box.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace convgrad {
namespace {

// Returns the number of indices from `index` to the end of its block.
int64_t LeftInBlock(const PhysicalAxis& axis, int64_t index) {
  if (axis.block == 0) return std::numeric_limits<int64_t>::max();
  return axis.block - (axis.first + index) % axis.block;
}

bool StartsBlock(const PhysicalAxis& axis, int64_t index) {
  return axis.block == 0 || (axis.first + index) % axis.block == 0;
}

// Cuts one axis into boxes of one to three axes.
class AxisCutter {
 public:
  AxisCutter(const PhysicalAxis& source, const PhysicalAxis& destination)
      : source_(source),
        destination_(destination),
        large_(std::max(source.block, destination.block)),
        small_(source.block == 0 || destination.block == 0
                   ? large_
                   : std::min(source.block, destination.block)) {}

  std::vector<Box> Cut() {
    const int64_t extent = source_.extent;
    int64_t index = 0;
    while (index < extent) {
      const bool blocks =
          large_ > 0 && large_ % small_ == 0 && extent - index >= large_ &&
          StartsBlock(source_, index) && StartsBlock(destination_, index);
      index +=
          blocks ? CutBlocks(index, (extent - index) / large_) : CutRun(index);
    }
    if (destination_.padded > extent) Pad(destination_.padded - extent);
    return std::move(pieces_);
  }

 private:
  int64_t CutBlocks(int64_t index, int64_t count) {
    Box piece = StartAt(index);
    piece.axes.push_back(AxisFrom(index, large_, count));
    if (small_ < large_) {
      piece.axes.push_back(AxisFrom(index, small_, large_ / small_));
    }
    piece.axes.push_back({small_, small_, source_.stride, destination_.stride});
    pieces_.push_back(std::move(piece));
    return count * large_;
  }

  int64_t CutRun(int64_t index) {
    const int64_t length =
        std::min({source_.extent - index, LeftInBlock(source_, index),
                  LeftInBlock(destination_, index)});
    Box piece = StartAt(index);
    piece.axes.push_back({length, length, source_.stride, destination_.stride});
    pieces_.push_back(std::move(piece));
    return length;
  }

  void Pad(int64_t count) {
    if (pieces_.back().axes.size() == 1) {
      pieces_.back().axes[0].padded += count;
      return;
    }
    Box piece;
    piece.destination_offset = OffsetAt(destination_, source_.extent);
    piece.axes.push_back({0, count, 0, destination_.stride});
    pieces_.push_back(std::move(piece));
  }

  Box StartAt(int64_t index) const {
    Box piece;
    piece.source_offset = OffsetAt(source_, index);
    piece.destination_offset = OffsetAt(destination_, index);
    return piece;
  }

  // Returns an axis with a step of `step` indices.
  BoxAxis AxisFrom(int64_t index, int64_t step, int64_t count) const {
    return {
        count, count,
        OffsetAt(source_, index + step) - OffsetAt(source_, index),
        OffsetAt(destination_, index + step) - OffsetAt(destination_, index)};
  }

  const PhysicalAxis source_;
  const PhysicalAxis destination_;
  const int64_t large_, small_;
  std::vector<Box> pieces_;
};

}  // namespace

void AppendBoxes(const Box& origin, const PhysicalLayout& from,
                 const PhysicalLayout& to, std::vector<Box>* boxes) {
  std::vector<Box> made = {origin};
  for (size_t i = 0; i < from.axes.size(); ++i) {
    std::vector<Box> next;
    for (const Box& piece : AxisCutter(from.axes[i], to.axes[i]).Cut()) {
      for (Box box : made) {
        box.source_offset += piece.source_offset;
        box.destination_offset += piece.destination_offset;
        box.axes.insert(box.axes.end(), piece.axes.begin(), piece.axes.end());
        next.push_back(std::move(box));
      }
    }
    made = std::move(next);
  }
  boxes->insert(boxes->end(), made.begin(), made.end());
}

}  // namespace convgrad

#include "backends/kernels/copies/reorder.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "backends/core/checked_math.h"
#include "backends/core/fractal_layout.h"

namespace convgrad {
namespace {

constexpr int64_t kPartBytes = 64 << 10;

// Returns one past the last element that the boxes read.
int64_t EndOfSource(const std::vector<Box>& boxes) {
  int64_t end = 0;
  for (const Box& box : boxes) {
    int64_t last = box.source_offset;
    bool is_empty = false;
    for (const BoxAxis& axis : box.axes) {
      is_empty |= axis.extent == 0;
      last += (axis.extent - 1) * axis.source_stride;
    }
    if (!is_empty) end = std::max(end, last + 1);
  }
  return end;
}

}  // namespace

Reorder Reorder::Make(const TensorDescriptor& from,
                      const TensorDescriptor& to) {
  if (ElementCount(from) == 0) return Reorder();
  if (from.layout == Layout::kFractalZ3D || to.layout == Layout::kFractalZ3D) {
    return MakeWeight(from, to);
  }
  return Make(PhysicalLayoutOf(from), from.dtype, PhysicalLayoutOf(to),
              to.dtype);
}

Reorder Reorder::Make(const PhysicalLayout& from, DataType from_dtype,
                      const PhysicalLayout& to, DataType to_dtype) {
  Reorder reorder;
  for (const PhysicalAxis& axis : from.axes) {
    if (axis.extent == 0) return reorder;
  }
  std::vector<Box> boxes;
  AppendBoxes(Box(), from, to, &boxes);
  reorder.AddBoxes(std::move(boxes), {from_dtype, to_dtype});
  return reorder;
}

// Makes a box for every group of a super-group. Each box has the super-groups
// as its first axis.
Reorder Reorder::MakeWeight(const TensorDescriptor& from,
                            const TensorDescriptor& to) {
  const int64_t groups =
      to.layout == Layout::kFractalZ3D ? to.groups : from.groups;
  const GroupedWeight source(from, groups), destination(to, groups);
  // Consecutive groups that form one block on both sides.
  const int64_t fused = std::min(
      std::lcm(source.fused_groups(), destination.fused_groups()), groups);
  const int64_t source_step =
      CeilDiv(fused, source.fused_groups()) * source.super_group_stride();
  const int64_t destination_step = CeilDiv(fused, destination.fused_groups()) *
                                   destination.super_group_stride();
  std::vector<Box> boxes;
  for (int64_t e = 0; e < fused; ++e) {
    const int64_t count = CeilDiv(groups - e, fused);
    const Box origin = {
        {{count, count, source_step, destination_step}},
        e / source.fused_groups() * source.super_group_stride(),
        e / destination.fused_groups() * destination.super_group_stride()};
    AppendBoxes(origin, source.Group(e % source.fused_groups()),
                destination.Group(e % destination.fused_groups()), &boxes);
  }
  Reorder reorder;
  if (destination.fused_groups() > 1) reorder.zeroed_bytes_ = *ByteSize(to);
  reorder.AddBoxes(std::move(boxes), {from.dtype, to.dtype});
  return reorder;
}

void Reorder::AddBoxes(std::vector<Box> boxes, TileOptions options) {
  options.readable = EndOfSource(boxes);
  for (Box& box : boxes) {
    TiledBox tiled(std::move(box), options);
    const int64_t tile_bytes = tiled.tile_size() * ByteSizeOf(options.to);
    const int64_t tiles = std::max<int64_t>(kPartBytes / tile_bytes, 1);
    const int64_t parts = CeilDiv(tiled.tile_count(), tiles);
    boxes_.push_back({std::move(tiled), tiles, part_count_});
    part_count_ += parts;
  }
  if (zeroed_bytes_ > 0) part_count_ = 1;
}

void Reorder::Run(const void* source, void* destination, int64_t begin,
                  int64_t end) const {
  if (zeroed_bytes_ == 0) {
    for (int64_t part = begin; part < end; ++part) {
      RunTiles(source, destination, part);
    }
  } else if (begin < end) {
    std::memset(destination, 0, zeroed_bytes_);
    for (const PartedBox& parted : boxes_) {
      parted.box.Run(source, destination, 0, parted.box.tile_count());
    }
  }
}

void Reorder::RunTiles(const void* source, void* destination,
                       int64_t part) const {
  const auto after = std::upper_bound(
      boxes_.begin(), boxes_.end(), part,
      [](int64_t p, const PartedBox& box) { return p < box.first_part; });
  const PartedBox& parted = *(after - 1);
  const int64_t begin = (part - parted.first_part) * parted.tiles_per_part;
  parted.box.Run(
      source, destination, begin,
      std::min(begin + parted.tiles_per_part, parted.box.tile_count()));
}

}  // namespace convgrad

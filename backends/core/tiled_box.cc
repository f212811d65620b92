#include "backends/core/tiled_box.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/types/span.h"
#include "backends/core/checked_math.h"
#include "backends/core/element_convert.h"
#include "backends/core/transpose_tile.h"

namespace convgrad {
namespace {

// A tile's elements: 16 KiB of f32, 32 KiB of 16-bit ones. Of these and half
// and double as many, the fastest on an EPYC 9004 (tests/bench/reorder_speed).
constexpr int64_t kWideTileElements = 4096;
constexpr int64_t kNarrowTileElements = 16384;

int64_t TileCapacity(const TileOptions& options) {
  return ByteSizeOf(options.from) + ByteSizeOf(options.to) == 4
             ? kNarrowTileElements
             : kWideTileElements;
}

// What a transposition may read beyond a tile's end.
constexpr int64_t kSlackBytes = 64;

// Shorter runs are moved by strided copies, and are not streamed.
constexpr int64_t kShortRun = 32;  // elements

// From this many bytes on, runs are moved from source to destination directly.
constexpr int64_t kDirectRunBytes = 256;

// Returns the strides of a dense array of `extents`, the last of `order`
// innermost.
template <typename Extents, typename Order>
Extents DenseStrides(const Extents& extents, const Order& order) {
  Extents strides(extents.size(), 1);
  int64_t stride = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[*axis] = stride;
    stride *= extents[*axis];
  }
  return strides;
}

// Converts or copies along merged loops, whose innermost should be a long run.
void MoveRuns(DataType from, const char* source, DataType to, char* destination,
              const StridedLoops& loops, bool stream) {
  absl::Span<const StridedLoop> outer = loops;
  int64_t length = 1;
  if (!outer.empty()) {
    length = outer.back().extent;
    outer.remove_suffix(1);
  }
  const auto move = stream ? StreamRun : ConvertRun;
  ForEachStep(outer, 0, 0, [&](int64_t at, int64_t target) {
    move(from, source + at * ByteSizeOf(from), to,
         destination + target * ByteSizeOf(to), length);
  });
}

bool IsRun(const StridedLoop& loop) {
  return loop.source_stride == 1 && loop.destination_stride == 1;
}

bool HasLongRuns(const StridedLoops& loops) {
  return !loops.empty() && IsRun(loops.back()) &&
         loops.back().extent >= kShortRun;
}

int64_t Product(absl::Span<const int64_t> factors) {
  return std::accumulate(factors.begin(), factors.end(), int64_t{1},
                         std::multiplies<>());
}

}  // namespace

struct TiledBox::Tile {
  Extents size;   // of the destination, pads included
  Extents valid;  // of the source
  int64_t source = 0, destination = 0;
  bool is_empty = false;  // nothing but pads
  bool has_pads = false;
};

struct TiledBox::Buffers {
  alignas(64) char gathered[kNarrowTileElements * 2 + kSlackBytes];
  alignas(64) char packed[kNarrowTileElements * 2];
  alignas(64) char wide[kNarrowTileElements * 2];
};

TiledBox::TiledBox(Box box, const TileOptions& options)
    : options_(options),
      narrow_(ByteSizeOf(options.from) < ByteSizeOf(options.to) ? options.from
                                                                : options.to),
      source_offset_(box.source_offset),
      destination_offset_(box.destination_offset) {
  Normalize(std::move(box));
  ChooseTile();
  ChooseWalk();
}

void TiledBox::Normalize(Box box) {
  const int pinned = options_.pin_first ? 1 : 0;
  std::stable_sort(box.axes.begin() + pinned, box.axes.end(),
                   [](const BoxAxis& a, const BoxAxis& b) {
                     return a.destination_stride > b.destination_stride;
                   });
  for (const BoxAxis& axis : box.axes) {
    const int count = static_cast<int>(axes_.size());
    if (count >= pinned && axis.extent == 1 && axis.padded == 1) continue;
    if (count > pinned) {
      BoxAxis& outer = axes_.back();
      if (axis.padded == axis.extent &&
          outer.source_stride == axis.source_stride * axis.extent &&
          outer.destination_stride == axis.destination_stride * axis.extent) {
        outer = {outer.extent * axis.extent, outer.padded * axis.extent,
                 axis.source_stride, axis.destination_stride};
        continue;
      }
    }
    axes_.push_back(axis);
  }
  if (axes_.empty()) axes_.push_back({1, 1, 1, 1});
  by_source_.resize(axes_.size());
  std::iota(by_source_.begin(), by_source_.end(), 0);
  std::stable_sort(by_source_.begin(), by_source_.end(), [&](int a, int b) {
    return axes_[a].source_stride > axes_[b].source_stride;
  });
}

void TiledBox::GrowAlong(bool by_source, int64_t run_bytes,
                         Extents* tile) const {
  const int64_t element = ByteSizeOf(by_source ? options_.from : options_.to);
  const int64_t wanted = run_bytes / element;
  int64_t run = 1;
  for (size_t i = axes_.size(); i-- > (options_.pin_first ? 1 : 0);) {
    const int axis = by_source ? by_source_[i] : static_cast<int>(i);
    if (options_.pin_first && axis == 0) continue;
    const BoxAxis& a = axes_[axis];
    const int64_t stride = by_source ? a.source_stride : a.destination_stride;
    const int64_t extent =
        by_source ? std::max<int64_t>(a.extent, 1) : a.padded;
    // Gaps within a cache line or as long as the run are worth spanning.
    if (run >= wanted || stride > std::max(2 * run, 64 / element)) return;
    // Whole squares of a transposition (8 x 8) along contiguous axes.
    const int64_t unit =
        a.source_stride == 1 || a.destination_stride == 1 ? 8 : 1;
    const int64_t steps = CeilDiv(CeilDiv(wanted, run), unit) * unit;
    if (steps < extent) {
      // Even tiles rather than a small last one.
      const int64_t even =
          CeilDiv(CeilDiv(extent, CeilDiv(extent, steps)), unit) * unit;
      (*tile)[axis] = std::max((*tile)[axis], std::min(even, a.padded));
      return;
    }
    (*tile)[axis] = std::max((*tile)[axis], extent);
    run *= extent;
  }
}

TiledBox::Extents TiledBox::TileFor(int64_t run_bytes) const {
  Extents tile(axes_.size(), 1);
  GrowAlong(false, run_bytes, &tile);
  GrowAlong(true, run_bytes, &tile);
  return tile;
}

void TiledBox::ChooseTile() {
  int64_t run_bytes = 1024;
  tile_ = TileFor(run_bytes);
  const int64_t capacity = TileCapacity(options_);
  while (Product(tile_) > capacity) {
    run_bytes /= 2;
    tile_ = TileFor(run_bytes);
  }
  for (;;) {
    run_bytes *= 2;
    Extents larger = tile_;
    GrowAlong(false, run_bytes, &larger);
    if (Product(larger) > capacity || run_bytes > capacity * 4) break;
    tile_ = std::move(larger);
  }
  for (size_t i = 0; i < axes_.size(); ++i) {
    tile_counts_.push_back(CeilDiv(axes_[i].padded, tile_[i]));
    tile_count_ *= tile_counts_.back();
  }
  const BoxAxis& inner = axes_.back();
  is_direct_ = inner.source_stride == 1 && inner.destination_stride == 1 &&
               tile_.back() * ByteSizeOf(narrow_) >= kDirectRunBytes &&
               std::all_of(axes_.begin(), axes_.end(), [](const BoxAxis& axis) {
                 return axis.padded == axis.extent;
               });
}

// Of source and destination order, takes the one whose innermost step recurs
// less often: the pages that the other side touches meanwhile are fewer, and
// still in the TLB on the next round.
void TiledBox::ChooseWalk() {
  walk_.resize(axes_.size());
  std::iota(walk_.begin(), walk_.end(), 0);
  if (options_.pin_first) return;
  const auto inner_steps = [&](absl::Span<const int> order) {
    for (size_t i = order.size(); i-- > 0;) {
      if (tile_counts_[order[i]] > 1) return tile_counts_[order[i]];
    }
    return int64_t{1};
  };
  if (inner_steps(by_source_) < inner_steps(walk_)) walk_ = by_source_;
}

int64_t TiledBox::tile_size() const { return Product(tile_); }

TiledBox::Tile TiledBox::TileAt(int64_t index) const {
  Tile tile;
  const size_t rank = axes_.size();
  tile.size.resize(rank);
  tile.valid.resize(rank);
  tile.source = source_offset_;
  tile.destination = destination_offset_;
  for (size_t k = rank; k-- > 0;) {
    const int i = walk_[k];
    const BoxAxis& axis = axes_[i];
    const int64_t start = index % tile_counts_[i] * tile_[i];
    index /= tile_counts_[i];
    tile.size[i] = std::min(tile_[i], axis.padded - start);
    tile.valid[i] = std::clamp<int64_t>(axis.extent - start, 0, tile.size[i]);
    tile.has_pads |= tile.valid[i] < tile.size[i];
    tile.is_empty |= tile.valid[i] == 0;
    tile.source += start * axis.source_stride;
    tile.destination += start * axis.destination_stride;
  }
  return tile;
}

void TiledBox::Run(const void* source, void* destination, int64_t begin,
                   int64_t end) const {
  const auto* from = static_cast<const char*>(source);
  Tile next = TileAt(begin);
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile = std::move(next);
    if (index + 1 < end) {
      next = TileAt(index + 1);
      if (!is_direct_) Prefetch(next, from);
    }
    MoveTile(tile, from, static_cast<char*>(destination));
  }
}

void TiledBox::Prefetch(const Tile& tile, const char* source) const {
  const int64_t element = ByteSizeOf(options_.from);
  StridedLoops loops;
  for (int axis : by_source_) {
    loops.push_back({tile.valid[axis], axes_[axis].source_stride,
                     axes_[axis].source_stride});
  }
  MergeLoops(&loops);
  if (loops.empty()) return;
  StridedLoop inner = loops.back();
  absl::Span<const StridedLoop> outer = loops;
  outer.remove_suffix(1);
  const char* first = source + tile.source * element;
  const int64_t bytes = inner.extent * inner.source_stride * element;
  ForEachStep(outer, 0, 0, [&](int64_t at, int64_t) {
    const char* p = first + at * element;
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
  });
}

void TiledBox::MoveTile(const Tile& tile, const char* source,
                        char* destination) const {
  char* to = destination + tile.destination * ByteSizeOf(options_.to);
  const char* from = source + tile.source * ByteSizeOf(options_.from);
  if (is_direct_) {
    StridedLoops loops;
    for (size_t i = 0; i < axes_.size(); ++i) {
      loops.push_back(
          {tile.size[i], axes_[i].source_stride, axes_[i].destination_stride});
    }
    MergeLoops(&loops);
    return MoveRuns(options_.from, from, options_.to, to, loops,
                    options_.stream);
  }
  Buffers buffers;
  if (tile.is_empty) {
    std::memset(buffers.packed, 0, Product(tile.size) * ByteSizeOf(narrow_));
  } else {
    StridedLoops loops;
    int64_t readable;
    const char* gathered = Gather(tile, from, &loops, &readable, &buffers);
    Permute(tile, gathered, loops, readable, buffers.packed);
  }
  Scatter(tile, &buffers, to);
}

// Brings the tile to the narrow type. Sets `loops`, in destination order, to
// go from there to the packed tile.
const char* TiledBox::Gather(const Tile& tile, const char* source,
                             StridedLoops* loops, int64_t* readable,
                             Buffers* buffers) const {
  Extents by_destination(axes_.size());
  std::iota(by_destination.begin(), by_destination.end(), 0);
  const Extents packed = DenseStrides(tile.size, by_destination);
  const bool converts = options_.from != narrow_;
  const Extents dense =
      converts ? DenseStrides(tile.valid, by_source_) : Extents();
  for (size_t i = 0; i < axes_.size(); ++i) {
    loops->push_back({tile.valid[i],
                      converts ? dense[i] : axes_[i].source_stride, packed[i]});
  }
  *readable = options_.readable - tile.source;
  if (!converts) return source;

  StridedLoops gather;
  for (int axis : by_source_) {
    gather.push_back(
        {tile.valid[axis], axes_[axis].source_stride, dense[axis]});
  }
  MergeLoops(&gather);
  if (HasLongRuns(gather)) {
    MoveRuns(options_.from, source, narrow_, buffers->gathered, gather, false);
  } else {
    CopyStrided(ByteSizeOf(options_.from), gather, source, buffers->wide);
    ConvertRun(options_.from, buffers->wide, narrow_, buffers->gathered,
               Product(tile.valid));
  }
  *readable = kNarrowTileElements + kSlackBytes / 2;
  return buffers->gathered;
}

void TiledBox::Permute(const Tile& tile, const char* source,
                       const StridedLoops& loops, int64_t readable,
                       char* packed) const {
  int column = -1, row = -1;
  for (int i = 0; i < static_cast<int>(loops.size()); ++i) {
    if (loops[i].source_stride == 1 && loops[i].extent > 1) column = i;
    if (loops[i].destination_stride == 1 && tile.size[i] > 1) row = i;
  }
  const int element = static_cast<int>(ByteSizeOf(narrow_));
  const bool transposes = column >= 0 && row >= 0 && column != row;
  StridedLoops others;
  bool has_other_pads = false;
  for (int i = 0; i < static_cast<int>(loops.size()); ++i) {
    if (transposes && i == row) continue;
    has_other_pads |= tile.valid[i] < tile.size[i];
    if (!transposes || i != column) others.push_back(loops[i]);
  }
  if (has_other_pads) std::memset(packed, 0, Product(tile.size) * element);
  MergeLoops(&others);
  if (!transposes) return CopyStrided(element, others, source, packed);
  TransposeTile transposition;
  transposition.element_bytes = element;
  transposition.rows = loops[row].extent;
  transposition.padded_rows = tile.size[row];
  transposition.columns = loops[column].extent;
  transposition.row_pitch = loops[row].source_stride;
  transposition.column_pitch = loops[column].destination_stride;
  transposition.outer = others;
  transposition.readable = readable;
  Transpose(transposition, source, packed);
}

void TiledBox::Scatter(const Tile& tile, Buffers* buffers,
                       char* destination) const {
  Extents order(axes_.size());
  std::iota(order.begin(), order.end(), 0);
  const Extents packed = DenseStrides(tile.size, order);
  StridedLoops loops;
  for (size_t i = 0; i < axes_.size(); ++i) {
    loops.push_back({tile.size[i], packed[i], axes_[i].destination_stride});
  }
  MergeLoops(&loops);
  if (HasLongRuns(loops)) {
    return MoveRuns(narrow_, buffers->packed, options_.to, destination, loops,
                    options_.stream);
  }
  const char* source = buffers->packed;
  if (options_.to != narrow_) {
    ConvertRun(narrow_, source, options_.to, buffers->wide, Product(tile.size));
    source = buffers->wide;
  }
  CopyStrided(ByteSizeOf(options_.to), loops, source, destination);
}

}  // namespace convgrad

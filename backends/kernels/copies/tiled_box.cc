#include "backends/kernels/copies/tiled_box.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/types/span.h"
#include "backends/core/checked_math.h"
#include "backends/kernels/copies/element_convert.h"
#include "backends/kernels/copies/transpose_tile.h"

namespace convgrad {
namespace {

// Bytes that a transposition may read beyond a tile's end.
constexpr int64_t kSlackBytes = 64;

// Strided copies move shorter runs.
constexpr int64_t kShortRun = 32;  // elements

// Runs of at least this size are copied directly from source to destination.
constexpr int64_t kDirectRunBytes = 256;

// Converts or copies along merged loops, the innermost of which should be a
// long run.
void MoveRuns(DataType from, const char* source, DataType to, char* destination,
              const StridedLoops& loops) {
  absl::Span<const StridedLoop> outer = loops;
  int64_t length = 1;
  if (!outer.empty()) {
    length = outer.back().extent;
    outer.remove_suffix(1);
  }
  ForEachStep(outer, 0, 0, [&](int64_t at, int64_t target) {
    ConvertRun(from, source + at * ByteSizeOf(from), to,
               destination + target * ByteSizeOf(to), length);
  });
}

// Returns the dtype of buffered tiles: the narrower one, unless it has bytes,
// which Transpose doesn't take.
DataType NarrowOf(const TileOptions& options) {
  const int64_t from = ByteSizeOf(options.from);
  return from > 1 && from < ByteSizeOf(options.to) ? options.from : options.to;
}

bool IsRun(const StridedLoop& loop) {
  return loop.source_stride == 1 && loop.destination_stride == 1;
}

bool HasLongRuns(const StridedLoops& loops) {
  return !loops.empty() && IsRun(loops.back()) &&
         loops.back().extent >= kShortRun;
}

}  // namespace

struct TiledBox::Tile {
  Extents size;          // of the destination, pads included
  Extents valid;         // of the source
  Extents packed;        // strides of a dense tile in destination order
  int64_t elements = 1;  // pads included
  int64_t source = 0, destination = 0;
  bool is_empty = false;  // nothing but pads
};

struct TiledBox::Buffers {
  alignas(64) char gathered[kNarrowTileElements * 2 + kSlackBytes];
  alignas(64) char packed[kNarrowTileElements * 2];
  alignas(64) char wide[kNarrowTileElements * 2];
};

TiledBox::TiledBox(Box box, const TileOptions& options)
    : options_(options),
      narrow_(NarrowOf(options)),
      source_offset_(box.source_offset),
      destination_offset_(box.destination_offset),
      tiling_(ChooseTiling(std::move(box), options)) {
  const auto& axes = tiling_.axes;
  const BoxAxis& inner = axes.back();
  is_direct_ = inner.source_stride == 1 && inner.destination_stride == 1 &&
               tiling_.tile.back() * ByteSizeOf(narrow_) >= kDirectRunBytes &&
               std::all_of(axes.begin(), axes.end(), [](const BoxAxis& axis) {
                 return axis.padded == axis.extent;
               });
}

int64_t TiledBox::tile_size() const { return *CheckedProduct(tiling_.tile); }

TiledBox::Tile TiledBox::TileAt(int64_t index) const {
  Tile tile;
  const size_t rank = tiling_.axes.size();
  tile.size.resize(rank);
  tile.valid.resize(rank);
  tile.packed.resize(rank);
  tile.source = source_offset_;
  tile.destination = destination_offset_;
  for (size_t k = rank; k-- > 0;) {
    const int i = tiling_.walk[k];
    const BoxAxis& axis = tiling_.axes[i];
    const int64_t start = index % tiling_.tile_counts[i] * tiling_.tile[i];
    index /= tiling_.tile_counts[i];
    tile.size[i] = std::min(tiling_.tile[i], axis.padded - start);
    tile.valid[i] = std::clamp<int64_t>(axis.extent - start, 0, tile.size[i]);
    tile.is_empty |= tile.valid[i] == 0;
    tile.source += start * axis.source_stride;
    tile.destination += start * axis.destination_stride;
  }
  for (size_t i = rank; i-- > 0;) {
    tile.packed[i] = tile.elements;
    tile.elements *= tile.size[i];
  }
  return tile;
}

void TiledBox::Run(const void* source, void* destination, int64_t begin,
                   int64_t end) const {
  for (int64_t index = begin; index < end; ++index) {
    MoveTile(TileAt(index), static_cast<const char*>(source),
             static_cast<char*>(destination));
  }
}

void TiledBox::MoveTile(const Tile& tile, const char* source,
                        char* destination) const {
  char* to = destination + tile.destination * ByteSizeOf(options_.to);
  const char* from = source + tile.source * ByteSizeOf(options_.from);
  if (is_direct_) {
    StridedLoops loops;
    for (size_t i = 0; i < tiling_.axes.size(); ++i) {
      loops.push_back({tile.size[i], tiling_.axes[i].source_stride,
                       tiling_.axes[i].destination_stride});
    }
    MergeLoops(&loops);
    return MoveRuns(options_.from, from, options_.to, to, loops);
  }
  Buffers buffers;
  if (tile.is_empty) {
    std::memset(buffers.packed, 0, tile.elements * ByteSizeOf(narrow_));
  } else {
    StridedLoops loops;
    int64_t readable;
    const char* gathered = Gather(tile, from, &loops, &readable, &buffers);
    Permute(tile, gathered, loops, readable, buffers.packed);
  }
  Scatter(tile, &buffers, to);
}

// Converts the tile to the narrow type. Sets `loops`, in destination order,
// that lead from there to the packed tile.
const char* TiledBox::Gather(const Tile& tile, const char* source,
                             StridedLoops* loops, int64_t* readable,
                             Buffers* buffers) const {
  for (size_t i = 0; i < tiling_.axes.size(); ++i) {
    loops->push_back(
        {tile.valid[i], tiling_.axes[i].source_stride, tile.packed[i]});
  }
  *readable = options_.readable - tile.source;
  if (options_.from == narrow_) return source;

  StridedLoops gather;
  int64_t elements = 1;
  for (size_t i = tiling_.axes.size(); i-- > 0;) {
    StridedLoop& loop = (*loops)[tiling_.by_source[i]];
    gather.push_back({loop.extent, loop.source_stride, elements});
    loop.source_stride = elements;
    elements *= loop.extent;
  }
  std::reverse(gather.begin(), gather.end());
  MergeLoops(&gather);
  if (HasLongRuns(gather)) {
    MoveRuns(options_.from, source, narrow_, buffers->gathered, gather);
  } else {
    CopyStrided(ByteSizeOf(options_.from), gather, source, buffers->wide);
    ConvertRun(options_.from, buffers->wide, narrow_, buffers->gathered,
               elements);
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
  if (has_other_pads) std::memset(packed, 0, tile.elements * element);
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
  StridedLoops loops;
  for (size_t i = 0; i < tiling_.axes.size(); ++i) {
    loops.push_back(
        {tile.size[i], tile.packed[i], tiling_.axes[i].destination_stride});
  }
  MergeLoops(&loops);
  if (HasLongRuns(loops)) {
    return MoveRuns(narrow_, buffers->packed, options_.to, destination, loops);
  }
  const char* source = buffers->packed;
  if (options_.to != narrow_) {
    ConvertRun(narrow_, source, options_.to, buffers->wide, tile.elements);
    source = buffers->wide;
  }
  CopyStrided(ByteSizeOf(options_.to), loops, source, destination);
}

}  // namespace convgrad

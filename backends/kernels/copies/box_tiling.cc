#include "backends/kernels/copies/box_tiling.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/types/span.h"
#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

class TilingChooser {
 public:
  TilingChooser(Box box, const TileOptions& options) : options_(options) {
    Normalize(std::move(box));
    ChooseTile();
    ChooseWalk();
  }

  BoxTiling Take() { return std::move(tiling_); }

 private:
  using Extents = BoxTiling::Extents;

  void Normalize(Box box);
  void ChooseTile();
  void ChooseWalk();
  Extents TileFor(int64_t run_bytes) const;
  void GrowAlong(bool by_source, int64_t run_bytes, Extents* tile) const;

  int64_t Capacity() const {
    return ByteSizeOf(options_.from) + ByteSizeOf(options_.to) == 4
               ? kNarrowTileElements
               : kWideTileElements;
  }

  const TileOptions options_;
  BoxTiling tiling_;
};

void TilingChooser::Normalize(Box box) {
  auto& axes = tiling_.axes;
  std::stable_sort(box.axes.begin(), box.axes.end(),
                   [](const BoxAxis& a, const BoxAxis& b) {
                     return a.destination_stride > b.destination_stride;
                   });
  for (const BoxAxis& axis : box.axes) {
    if (axis.extent == 1 && axis.padded == 1) continue;
    if (!axes.empty()) {
      BoxAxis& outer = axes.back();
      if (axis.padded == axis.extent &&
          outer.source_stride == axis.source_stride * axis.extent &&
          outer.destination_stride == axis.destination_stride * axis.extent) {
        outer = {outer.extent * axis.extent, outer.padded * axis.extent,
                 axis.source_stride, axis.destination_stride};
        continue;
      }
    }
    axes.push_back(axis);
  }
  if (axes.empty()) axes.push_back({1, 1, 1, 1});
  tiling_.by_source.resize(axes.size());
  std::iota(tiling_.by_source.begin(), tiling_.by_source.end(), 0);
  std::stable_sort(tiling_.by_source.begin(), tiling_.by_source.end(),
                   [&](int a, int b) {
                     return axes[a].source_stride > axes[b].source_stride;
                   });
}

// Enlarges the tile until one side's runs have `run_bytes`.
void TilingChooser::GrowAlong(bool by_source, int64_t run_bytes,
                              Extents* tile) const {
  const int64_t element = ByteSizeOf(by_source ? options_.from : options_.to);
  const int64_t wanted = run_bytes / element;
  int64_t run = 1;
  for (size_t i = tiling_.axes.size(); i-- > 0;) {
    const int axis = by_source ? tiling_.by_source[i] : static_cast<int>(i);
    const BoxAxis& a = tiling_.axes[axis];
    const int64_t stride = by_source ? a.source_stride : a.destination_stride;
    const int64_t extent =
        by_source ? std::max<int64_t>(a.extent, 1) : a.padded;
    // Spanning a gap pays off within a cache line or up to the length of the
    // run.
    if (run >= wanted || stride > std::max(2 * run, 64 / element)) return;
    // Contiguous axes need whole squares of a transposition (8 x 8).
    const int64_t unit =
        a.source_stride == 1 || a.destination_stride == 1 ? 8 : 1;
    const int64_t steps = CeilDiv(CeilDiv(wanted, run), unit) * unit;
    if (steps < extent) {
      // Equal tiles are faster than large ones with a small last one.
      const int64_t even =
          CeilDiv(CeilDiv(extent, CeilDiv(extent, steps)), unit) * unit;
      (*tile)[axis] = std::max((*tile)[axis], std::min(even, a.padded));
      return;
    }
    (*tile)[axis] = std::max((*tile)[axis], extent);
    run *= extent;
  }
}

BoxTiling::Extents TilingChooser::TileFor(int64_t run_bytes) const {
  Extents tile(tiling_.axes.size(), 1);
  GrowAlong(false, run_bytes, &tile);
  GrowAlong(true, run_bytes, &tile);
  return tile;
}

void TilingChooser::ChooseTile() {
  int64_t run_bytes = 1024;
  Extents tile = TileFor(run_bytes);
  const int64_t capacity = Capacity();
  while (*CheckedProduct(tile) > capacity) {
    run_bytes /= 2;
    tile = TileFor(run_bytes);
  }
  while (run_bytes < capacity * 4) {
    run_bytes *= 2;
    Extents larger = tile;
    GrowAlong(false, run_bytes, &larger);
    if (*CheckedProduct(larger) > capacity) break;
    tile = std::move(larger);
  }
  for (size_t i = 0; i < tile.size(); ++i) {
    tiling_.tile_counts.push_back(CeilDiv(tiling_.axes[i].padded, tile[i]));
    tiling_.tile_count *= tiling_.tile_counts.back();
  }
  tiling_.tile = std::move(tile);
}

// Chooses between source and destination order: the one whose innermost step
// recurs less often. The other side then touches fewer pages meanwhile, and
// they are still in the TLB in the next round.
void TilingChooser::ChooseWalk() {
  auto& walk = tiling_.walk;
  walk.resize(tiling_.axes.size());
  std::iota(walk.begin(), walk.end(), 0);
  const auto inner_steps = [&](absl::Span<const int> order) {
    for (size_t i = order.size(); i-- > 0;) {
      const int64_t steps = tiling_.tile_counts[order[i]];
      if (steps > 1) return steps;
    }
    return int64_t{1};
  };
  if (inner_steps(tiling_.by_source) < inner_steps(walk)) {
    walk = tiling_.by_source;
  }
}

}  // namespace

BoxTiling ChooseTiling(Box box, const TileOptions& options) {
  return TilingChooser(std::move(box), options).Take();
}

}  // namespace convgrad

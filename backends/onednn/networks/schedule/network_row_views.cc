#include "backends/onednn/networks/schedule/network_row_views.h"

#include <algorithm>

#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {
namespace {

// Neighbouring axes of a value that have one stride in its memory.
struct AxisRun {
  int64_t count;         // elements
  int64_t pitch;         // stride in a row-major tensor of the value's dims
  int64_t stride;        // stride in the value's memory
  int64_t furthest = 0;  // largest index that a view uses

  bool Has(int64_t distance) const {
    return distance >= pitch && distance < count * pitch;
  }
};

using AxisRuns = std::vector<AxisRun>;

// Returns the fewest runs that cover all axes, the last axis first.
AxisRuns RunsOf(const StridedPlace& place) {
  AxisRuns runs;
  int64_t pitch = 1;
  for (auto axis = place.axes.rbegin(); axis != place.axes.rend(); ++axis) {
    for (auto part = axis->rbegin(); part != axis->rend(); ++part) {
      const bool continues =
          !runs.empty() &&
          part->stride == runs.back().stride * runs.back().count;
      if (continues) {
        runs.back().count *= part->extent;
      } else {
        runs.push_back({part->extent, pitch, part->stride});
      }
      pitch *= part->extent;
    }
  }
  return runs;
}

// Returns an axis whose elements are `distance` apart in a row-major tensor,
// split where it goes on in another run.
std::optional<std::vector<StridedAxis>> AxisIn(AxisRuns* runs, int64_t extent,
                                               int64_t distance) {
  std::vector<StridedAxis> axis;
  auto run = std::find_if(runs->begin(), runs->end(), [&](const AxisRun& each) {
    return each.Has(distance);
  });
  for (; extent > 1; ++run) {
    if (run == runs->end() || distance % run->pitch != 0) return std::nullopt;
    const int64_t step = distance / run->pitch;
    int64_t inside = extent;
    if (const int64_t room = run->count / step; extent > room) {
      if (run->count % step != 0 || extent % room != 0) return std::nullopt;
      inside = room;
    }
    axis.push_back({inside, step * run->stride});
    run->furthest += (inside - 1) * step;
    extent /= inside;
    distance = run->pitch * run->count;
  }
  std::reverse(axis.begin(), axis.end());
  return axis;
}

}  // namespace

int64_t OffsetOf(const std::vector<StridedAxis>& axes, int64_t index) {
  int64_t offset = 0;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    offset += index % axis->extent * axis->stride;
    index /= axis->extent;
  }
  return offset;
}

StridedPlace PlaceOf(const StepView& view, const Dims& dims) {
  StridedPlace place = {view.offset, {}};
  for (size_t i = 0; i < dims.size(); ++i) {
    place.axes.emplace_back();
    if (dims[i] != 1) place.axes[i].push_back({dims[i], view.strides[i]});
  }
  return place;
}

std::optional<StridedPlace> Composed(const StridedPlace& place,
                                     const StepView& view, const Dims& dims) {
  AxisRuns runs = RunsOf(place);
  StridedPlace composed = {place.offset, {}};
  for (AxisRun& run : runs) {
    if (run.count == 0) return std::nullopt;
    run.furthest = view.offset / run.pitch % run.count;
    composed.offset += run.furthest * run.stride;
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return std::nullopt;
    std::vector<StridedAxis>& axis = composed.axes.emplace_back();
    if (dims[i] == 1) continue;
    if (view.strides[i] == 0) {
      axis.push_back({dims[i], 0});
    } else if (auto found = AxisIn(&runs, dims[i], view.strides[i])) {
      axis = *std::move(found);
    } else {
      return std::nullopt;
    }
  }
  // An index beyond the end of its run would go on in the next run.
  const bool stays = std::all_of(runs.begin(), runs.end(), [](const auto& run) {
    return run.furthest < run.count;
  });
  if (!stays) return std::nullopt;
  return composed;
}

void AddCopyOf(const RowsView& view, const Location& to, const Dims& strides,
               absl::string_view kind, Schedule* schedule) {
  PhysicalLayout source, target;
  for (size_t i = 0; i < strides.size(); ++i) {
    int64_t stride = strides[i];
    const auto& axis = view.place.axes[i];
    for (auto part = axis.rbegin(); part != axis.rend(); ++part) {
      const int64_t extent = part->extent;
      source.axes.push_back(
          {.extent = extent, .stride = part->stride, .padded = extent});
      target.axes.push_back(
          {.extent = extent, .stride = stride, .padded = extent});
      stride *= extent;
    }
  }
  const DataType dtype = view.rows.blocks.dtype;
  AddReorder({source, dtype, view.location()}, {target, dtype, to}, schedule,
             kind);
}

}  // namespace convgrad::onednn

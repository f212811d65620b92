// `RowsView` tells where the elements of a value are within rows that an
// earlier step has written, so that steps can read them without a copy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/core/program/operators/views.h"
#include "backends/onednn/networks/schedule/network_layouts.h"

namespace convgrad::onednn {

// Units: elements.
struct StridedAxis {
  int64_t extent;
  int64_t stride;

  friend bool operator==(const StridedAxis&, const StridedAxis&) = default;
};

// Returns the offset of the element that has this row-major index among the
// elements of `axes`, the outermost first.
int64_t OffsetOf(const std::vector<StridedAxis>& axes, int64_t index);

// The places of a value's elements in other memory. Each axis of the value is a
// list of axes, the outermost first, because a reshape may merge axes that
// don't lie side by side. An axis of extent 1 has an empty list.
struct StridedPlace {
  int64_t offset = 0;  // of the first element
  std::vector<std::vector<StridedAxis>> axes;

  friend bool operator==(const StridedPlace&, const StridedPlace&) = default;
};

// Returns the place of a view of these dims.
StridedPlace PlaceOf(const StepView& view, const Dims& dims);

// Returns the place of a view, of dims `dims`, of a value that is itself at
// `place`; nullopt if strides can't describe it, or if it has no elements.
std::optional<StridedPlace> Composed(const StridedPlace& place,
                                     const StepView& view, const Dims& dims);

struct RowsView {
  NetworkTensor rows;
  StridedPlace place;

  // Returns the address of the value's first element.
  Location location() const {
    return {rows.buffer, place.offset * ByteSizeOf(rows.blocks.dtype)};
  }
};

// Appends a copy of the value, in the same dtype. `to` is the place of the
// copy's first element; `strides` are those of the copy's axes, in elements.
void AddCopyOf(const RowsView& view, const Location& to, const Dims& strides,
               absl::string_view kind, Schedule* schedule);

}  // namespace convgrad::onednn

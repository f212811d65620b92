#include "backends/core/program/operators/step_dims.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"

namespace convgrad {

absl::Status BadShape(absl::string_view field, const Dims& found,
                      absl::string_view expected) {
  return ShapeMismatch(field, ToString(found), expected);
}

absl::StatusOr<std::vector<int64_t>> StepDims::AxisNumbers(
    absl::string_view name) const {
  std::vector<int64_t> numbers = IntsAttribute(step_, name, axes());
  if (numbers.size() == axes()) return numbers;
  return ShapeMismatch(
      absl::StrCat(".", name), absl::StrCat(numbers.size(), " numbers"),
      absl::StrCat("one, or one per spatial axis of ", ToString(At(0))));
}

absl::Status StepDims::CheckSpatial() const {
  if (axes() > 0) return absl::OkStatus();
  return BadShape(".x", At(0), "(N, C, spatial...)");
}

absl::StatusOr<size_t> StepDims::Axis(absl::string_view name) const {
  const int64_t axis = IntAttribute(step_, name);
  const auto rank = static_cast<int64_t>(At(0).size());
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return OutOfRange(absl::StrCat(".", name), axis,
                    absl::StrCat("an axis of ", ToString(At(0))));
}

absl::Status StepDims::CheckPerChannel(size_t position) const {
  if (!Has(position) || At(position) == Dims{At(0)[1]}) return absl::OkStatus();
  return BadShape(FieldOf(position), At(position),
                  absl::StrCat("one number per channel of ", ToString(At(0))));
}

absl::Status StepDims::CheckBroadcast(size_t position, const Dims& dims) const {
  const bool fits = absl::c_equal(
      At(position), dims,
      [](int64_t own, int64_t wanted) { return own == 1 || own == wanted; });
  if (fits) return absl::OkStatus();
  return BadShape(FieldOf(position), At(position),
                  absl::StrCat(ToString(dims), ", or 1 along any axis"));
}

std::string StepDims::FieldOf(size_t position) const {
  return absl::StrCat(".", SpecOf(step_.op).operands[position].name);
}

}  // namespace convgrad

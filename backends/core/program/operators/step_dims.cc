#include "backends/core/program/operators/step_dims.h"

#include "absl/strings/str_cat.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {

std::string ToText(const Dims& dims) {
  return ToString(absl::MakeConstSpan(dims));
}

absl::Status BadShape(absl::string_view field, const Dims& found,
                      absl::string_view expected) {
  return InvalidField(Reason::kShapeMismatch, field, ToText(found), expected);
}

absl::StatusOr<std::vector<int64_t>> StepDims::AxisNumbers(
    absl::string_view name) const {
  std::vector<int64_t> numbers = IntsAttribute(step_, name, axes());
  if (numbers.size() == axes()) return numbers;
  return InvalidField(
      Reason::kShapeMismatch, absl::StrCat(".", name),
      absl::StrCat(numbers.size(), " numbers"),
      absl::StrCat("one, or one per spatial axis of ", ToText(At(0))));
}

absl::Status StepDims::CheckSpatial() const {
  if (axes() > 0) return absl::OkStatus();
  return BadShape(".x", At(0), "(N, C, spatial...)");
}

absl::StatusOr<size_t> StepDims::Axis(absl::string_view name) const {
  const int64_t axis = IntAttribute(step_, name);
  const auto rank = static_cast<int64_t>(At(0).size());
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return InvalidField(Reason::kOutOfRange, absl::StrCat(".", name),
                      absl::StrCat(axis),
                      absl::StrCat("an axis of ", ToText(At(0))));
}

absl::Status StepDims::CheckPerChannel(size_t position) const {
  if (!Has(position) || At(position) == Dims{At(0)[1]}) {
    return absl::OkStatus();
  }
  const auto& name = SpecOf(step_.op).operands[position].name;
  return BadShape(absl::StrCat(".", name), At(position),
                  absl::StrCat("one number per channel of ", ToText(At(0))));
}

}  // namespace convgrad

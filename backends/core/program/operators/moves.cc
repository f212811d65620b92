// Defines pad and index_select.
#include "backends/core/program/operators/moves.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Returns the most elements that may be padded on one side of an axis.
int64_t MostPads(const std::string& mode, int64_t extent) {
  if (mode == "reflect") return extent - 1;
  if (mode == "circular") return extent;
  return std::numeric_limits<int64_t>::max();
}

// Returns the axes of `padding`, which has the elements before and after each
// axis, from the last axis on.
absl::StatusOr<std::vector<PadAxis>> AxesOf(const StepDims& step) {
  const Dims& x = step.At(0);
  std::vector<PadAxis> axes;
  for (const int64_t extent : x) axes.push_back({extent, extent, 0});
  const auto pads = IntsAttribute(step.step(), "pads", 1);
  if (pads.size() % 2 != 0 || pads.size() / 2 >= x.size()) {
    return ShapeMismatch(
        ".pads", absl::StrCat(pads.size(), " numbers"),
        absl::StrCat("two for each of the last axes of ", ToString(x),
                     ", the first axis never among them"));
  }
  const std::string mode = WordAttribute(step.step(), "mode");
  for (size_t i = 0; i < pads.size(); ++i) {
    PadAxis& axis = axes[x.size() - 1 - i / 2];
    const int64_t most = MostPads(mode, axis.in);
    if (pads[i] > most) {
      return OutOfRange(".pads", pads[i],
                        absl::StrCat("at most ", most, " of mode=", mode,
                                     " along an axis of ", axis.in));
    }
    if (i % 2 == 0) axis.before = pads[i];
    const auto out = CheckedAdd(axis.out, pads[i]);
    if (!out) {
      return OutOfRange(".pads", pads[i], "sizes below 2^63 bytes");
    }
    axis.out = *out;
  }
  return axes;
}

absl::StatusOr<Dims> Pad(const StepDims& step) {
  ASSIGN_OR_RETURN(const auto axes, AxesOf(step));
  Dims dims;
  for (const PadAxis& axis : axes) dims.push_back(axis.out);
  return dims;
}

absl::Status CheckValue(const ProgramStep& step, const std::string& path) {
  if (!HasAttribute(step, "value") ||
      WordAttribute(step, "mode") == "constant") {
    return absl::OkStatus();
  }
  return InvalidField(Reason::kUnsupported, path + ".value",
                      absl::StrCat(FloatAttribute(step, "value")),
                      "none unless mode is constant");
}

// Returns kLast, i.e. rows, if the pad changes the second axis, because an
// image's channels are in blocks.
FeatureAxis FeaturesOfPad(const StepDims& step) {
  const auto axes = AxesOf(step);
  return axes.ok() && (*axes)[1].is_padded() ? FeatureAxis::kLast
                                             : FeatureAxis::kAny;
}

// Returns the operand's dims with the axis replaced by the index's dims.
absl::StatusOr<Dims> IndexSelect(const StepDims& step) {
  ASSIGN_OR_RETURN(const size_t axis, step.Axis("axis"));
  Dims dims = step.At(0);
  const auto place = dims.erase(dims.begin() + static_cast<int64_t>(axis));
  dims.insert(place, step.At(1).begin(), step.At(1).end());
  if (dims.size() <= kMaxValueRank) return dims;
  return BadShape(".index", step.At(1),
                  absl::StrCat("a result of rank ", kMaxValueRank,
                               " at most from ", ToString(step.At(0))));
}

}  // namespace

std::vector<OperatorSpec> MoveOperators() {
  const OperandSpec index = {.name = "index",
                             .kind = OperandKind::kIndices,
                             .most_rank = kMaxValueRank};
  return {{.op = Operator::kPad,
           .name = "pad",
           .attributes = {Required(Ints("pads", "", 0)),
                          Word("mode", "constant",
                               "constant|reflect|replicate|circular"),
                          Number("value", "0.0")},
           .features = FeatureAxis::kAny,
           .features_of = &FeaturesOfPad,
           .infer = &Pad,
           .check_attributes = &CheckValue},
          {.op = Operator::kIndexSelect,
           .name = "index_select",
           .operands = {{.name = "x"}, index},
           .attributes = {Required(Int("axis", ""))},
           .features = FeatureAxis::kLast,
           .infer = &IndexSelect}};
}

std::vector<PadAxis> PadAxesOf(const ProgramStep& step,
                               const ProgramShapes& shapes) {
  return *AxesOf(StepDims(step, shapes));
}

void ListPadSources(const ProgramStep& step, const PadAxis& axis,
                    int64_t* sources) {
  const std::string mode = WordAttribute(step, "mode");
  for (int64_t i = 0; i < axis.out; ++i) {
    int64_t at = i - axis.before;
    if (mode == "replicate") {
      at = std::clamp<int64_t>(at, 0, axis.in - 1);
    } else if (mode == "circular") {
      at = (at + axis.in) % axis.in;
    } else if (mode == "reflect") {
      at = at < 0 ? -at : at;
      at = at < axis.in ? at : 2 * (axis.in - 1) - at;
    } else if (at < 0 || at >= axis.in) {
      at = -1;
    }
    sources[i] = at;
  }
}

absl::Status CheckIndex(const ProgramStep& step, int64_t position,
                        int64_t index, int64_t extent) {
  if (index >= 0 && index < extent) return absl::OkStatus();
  return OutOfRange(absl::StrCat(OperandAt(step, 1), "[", position, "]"), index,
                    absl::StrCat("an index from 0 to ", extent - 1));
}

}  // namespace convgrad

// Defines upsample.
#include "backends/core/program/operators/windows/upsample.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Returns whether PyTorch's kernels ignore the factor. They look at the extents
// first. A linear mode copies an axis whose extent doesn't change. For images,
// nearest does so as well, and repeats each element of an axis whose extent
// doubles.
bool IgnoresFactor(const StepDims& dims, const UpsampleAxis& axis) {
  const std::string mode = WordAttribute(dims.step(), "mode");
  if (mode == "bicubic") return false;
  if (mode != "nearest") return axis.out == axis.in;
  if (dims.axes() != 2) return false;
  return axis.out == axis.in || (axis.out % 2 == 0 && axis.out / 2 == axis.in);
}

absl::StatusOr<UpsampleAxis> MakeAxis(const StepDims& dims, UpsampleAxis axis,
                                      double factor) {
  const auto in = static_cast<double>(axis.in);
  if (factor > 0) {
    const double size = std::floor(in * factor);
    // Above 2^53 not every integer is a double.
    if (size < 1 || size > 0x1p53) {
      return OutOfRange(".scale_factor", factor,
                        absl::StrCat("a size of at least 1 from ", axis.in));
    }
    axis.out = static_cast<int64_t>(size);
  }
  const auto out = static_cast<double>(axis.out);
  if (axis.align_corners) {
    axis.step = axis.out > 1 ? (in - 1) / (out - 1) : 0;
  } else {
    axis.step =
        factor > 0 && !IgnoresFactor(dims, axis) ? 1 / factor : in / out;
  }
  return axis;
}

absl::StatusOr<std::vector<UpsampleAxis>> AxesOf(const StepDims& dims) {
  RETURN_IF_ERROR(dims.CheckSpatial());
  const bool align = BoolAttribute(dims.step(), "align_corners");
  std::vector<double> factors = FloatsAttribute(dims.step(), "scale_factor");
  if (factors.size() == 1) factors.resize(dims.axes(), factors[0]);
  std::vector<int64_t> sizes(dims.axes());
  if (HasAttribute(dims.step(), "size")) {
    ASSIGN_OR_RETURN(sizes, dims.AxisNumbers("size"));
  } else if (factors.size() != dims.axes()) {
    return ShapeMismatch(
        ".scale_factor", absl::StrCat(factors.size(), " numbers"),
        absl::StrCat("one, or one per spatial axis of ", ToString(dims.At(0))));
  }
  std::vector<UpsampleAxis> result;
  for (size_t i = 0; i < dims.axes(); ++i) {
    ASSIGN_OR_RETURN(const UpsampleAxis axis,
                     MakeAxis(dims, {dims.At(0)[i + 2], sizes[i], 0, align},
                              factors.empty() ? 0 : factors[i]));
    result.push_back(axis);
  }
  return result;
}

// Returns the number of spatial axes that a mode is for; 0: any.
size_t AxesOfMode(absl::string_view mode) {
  if (mode == "nearest") return 0;
  if (mode == "linear") return 1;
  return mode == "trilinear" ? 3 : 2;
}

absl::StatusOr<Dims> Upsample(const StepDims& step) {
  ASSIGN_OR_RETURN(const auto axes, AxesOf(step));
  const std::string mode = WordAttribute(step.step(), "mode");
  const size_t wanted = AxesOfMode(mode);
  if (wanted != 0 && axes.size() != wanted) {
    return BadShape(".x", step.At(0),
                    absl::StrCat("rank ", wanted + 2, " of mode=", mode));
  }
  Dims dims = {step.At(0)[0], step.At(0)[1]};
  for (const UpsampleAxis& axis : axes) dims.push_back(axis.out);
  return dims;
}

int64_t Taps(const StepDims& step, size_t axis) {
  const int64_t out = step.result()[axis + 2];
  const std::string mode = WordAttribute(step.step(), "mode");
  if (mode == "nearest") return out;
  return SaturatingMul(out, mode == "bicubic" ? 4 : 2);
}

absl::Status CheckUpsample(const ProgramStep& step, const std::string& path) {
  const bool has_size = HasAttribute(step, "size");
  if (has_size == HasAttribute(step, "scale_factor")) {
    return Missing(path, has_size ? "both" : "neither",
                   "one of size and scale_factor");
  }
  for (const double factor : FloatsAttribute(step, "scale_factor")) {
    if (factor > 0) continue;
    return OutOfRange(path + ".scale_factor", factor, "more than 0");
  }
  if (!BoolAttribute(step, "align_corners") ||
      WordAttribute(step, "mode") != "nearest") {
    return absl::OkStatus();
  }
  return InvalidField(Reason::kUnsupported, path + ".align_corners", "true",
                      "false of mode=nearest");
}

}  // namespace

std::vector<OperatorSpec> UpsampleOperators() {
  return {{.op = Operator::kUpsample,
           .name = "upsample",
           .attributes = {{.name = "scale_factor",
                           .kind = AttributeKind::kFloats,
                           .minimum = 0},
                          Ints("size", "", 1),
                          Word("mode", "nearest",
                               "nearest|linear|bilinear|trilinear|bicubic"),
                          Flag("align_corners", "false")},
           .infer = &Upsample,
           .taps = &Taps,
           .check_attributes = &CheckUpsample}};
}

std::vector<UpsampleAxis> UpsampleAxesOf(const ProgramStep& step,
                                         const ProgramShapes& shapes) {
  return *AxesOf(StepDims(step, shapes));
}

int64_t NearestSource(const UpsampleAxis& axis, int64_t index) {
  const float source =
      std::floor(static_cast<float>(index) * static_cast<float>(axis.step));
  return std::min(static_cast<int64_t>(source), axis.in - 1);
}

CubicSource CubicSourceOf(const UpsampleAxis& axis, int64_t index) {
  constexpr double kTilt = -0.75;
  const double at = static_cast<double>(index);
  const double source =
      axis.align_corners ? axis.step * at : axis.step * (at + 0.5) - 0.5;
  const double low = std::floor(source), t = source - low;
  const auto near = [&](double x) {
    return ((kTilt + 2) * x - (kTilt + 3)) * x * x + 1;
  };
  const auto far = [&](double x) {
    return ((kTilt * x - 5 * kTilt) * x + 8 * kTilt) * x - 4 * kTilt;
  };
  const double weights[] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  CubicSource cubic;
  for (int64_t i = 0; i < 4; ++i) {
    cubic.taps[i] = {
        std::clamp<int64_t>(static_cast<int64_t>(low) - 1 + i, 0, axis.in - 1),
        weights[i]};
  }
  return cubic;
}

LinearSource LinearSourceOf(const UpsampleAxis& axis, int64_t index) {
  const double at = static_cast<double>(index);
  const double source = axis.align_corners
                            ? axis.step * at
                            : std::max(axis.step * (at + 0.5) - 0.5, 0.0);
  const int64_t low = std::min(static_cast<int64_t>(source), axis.in - 1);
  return {low, std::min(low + 1, axis.in - 1),
          std::min(source - static_cast<double>(low), 1.0)};
}

}  // namespace convgrad

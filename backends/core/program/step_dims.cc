#include "backends/core/program/step_dims.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

std::string Text(const Dims& dims) {
  return ToString(absl::MakeConstSpan(dims));
}

}  // namespace

absl::Status BadShape(absl::string_view field, const Dims& found,
                      absl::string_view expected) {
  return InvalidField(Reason::kShapeMismatch, field, Text(found), expected);
}

absl::StatusOr<std::vector<int64_t>> StepDims::AxisNumbers(
    absl::string_view name) const {
  std::vector<int64_t> numbers = IntsAttribute(step_, name, axes());
  if (numbers.size() == axes()) return numbers;
  return InvalidField(
      Reason::kShapeMismatch, absl::StrCat(".", name),
      absl::StrCat(numbers.size(), " numbers"),
      absl::StrCat("one, or one per spatial axis of ", Text(At(0))));
}

absl::Status StepDims::CheckSpatial() const {
  if (axes() > 0) return absl::OkStatus();
  return BadShape(".x", At(0), "(N, C, spatial...)");
}

absl::Status StepDims::CheckPerChannel(size_t position) const {
  if (!Has(position) || At(position) == Dims{At(0)[1]}) {
    return absl::OkStatus();
  }
  const auto& name = SpecOf(step_.op).operands[position].name;
  return BadShape(absl::StrCat(".", name), At(position),
                  absl::StrCat("one number per channel of ", Text(At(0))));
}

absl::StatusOr<std::pair<ConvProblem, ShapeHints>> StepDims::Problem() const {
  const Dims& x = At(0);
  const Dims& weight = At(1);
  if (weight.size() != x.size()) {
    return BadShape(".x", x,
                    absl::StrCat("the weight's rank, ", weight.size()));
  }
  std::pair<ConvProblem, ShapeHints> result;
  ConvProblem& problem = result.first;
  problem.transposed = step_.op == Operator::kConvTranspose;
  problem.batch = x[0];
  problem.in_channels = x[1];
  problem.groups =
      step_.op == Operator::kLinear ? 1 : IntAttribute(step_, "groups");
  const auto out_channels =
      problem.transposed ? CheckedMul(weight[1], problem.groups) : weight[0];
  if (!out_channels) {
    return InvalidField(Reason::kOverflow, ".groups",
                        absl::StrCat(problem.groups), "sizes below 2^63 bytes");
  }
  problem.out_channels = *out_channels;
  if (Has(2)) problem.bias = At(2);
  if (step_.op == Operator::kLinear) return result;
  RETURN_IF_ERROR(SetAxes(&problem, &result.second));
  return result;
}

absl::Status StepDims::SetAxes(ConvProblem* problem, ShapeHints* hints) const {
  ASSIGN_OR_RETURN(const auto stride, AxisNumbers("stride"));
  ASSIGN_OR_RETURN(const auto dilation, AxisNumbers("dilation"));
  const std::string word = WordAttribute(step_, "padding");
  std::vector<int64_t> padding(axes()), output_padding(axes());
  if (word.empty()) {
    ASSIGN_OR_RETURN(padding, AxisNumbers("padding"));
  } else {
    hints->padding = word == "same" ? Padding::kSameUpper : Padding::kValid;
  }
  if (problem->transposed) {
    ASSIGN_OR_RETURN(output_padding, AxisNumbers("output_padding"));
  }
  for (size_t i = 0; i < axes(); ++i) {
    if (word == "same" && stride[i] != 1) {
      return InvalidField(Reason::kUnsupported, ".stride",
                          absl::StrCat(stride[i]), "1 where padding is same");
    }
    SpatialAxis axis;
    axis.in = At(0)[i + 2];
    axis.kernel = At(1)[i + 2];
    axis.stride = stride[i];
    axis.dilation = dilation[i];
    axis.pad_begin = axis.pad_end = padding[i];
    axis.output_padding = output_padding[i];
    problem->axes.push_back(axis);
  }
  return absl::OkStatus();
}

absl::StatusOr<PoolAxis> StepDims::MakePoolAxis(PoolAxis axis) const {
  const auto reach = CheckedMul(axis.kernel - 1, axis.dilation);
  auto padded = CheckedMul(axis.pad_begin, 2);
  if (padded) padded = CheckedAdd(*padded, axis.in);
  const auto rounded = padded ? CheckedAdd(*padded, axis.stride) : padded;
  if (!reach || !rounded) {
    return InvalidField(Reason::kOverflow, ".kernel_size",
                        absl::StrCat(axis.kernel), "sizes below 2^63 bytes");
  }
  const int64_t span = *reach + 1;
  if (axis.pad_begin > span / 2) {
    return InvalidField(Reason::kOutOfRange, ".padding",
                        absl::StrCat(axis.pad_begin),
                        absl::StrCat("at most half of the window's ", span));
  }
  if (axis.pad_begin > 0 && axis.dilation > axis.in) {
    return InvalidField(Reason::kOutOfRange, ".dilation",
                        absl::StrCat(axis.dilation),
                        "at most the input's extent where it is padded");
  }
  const bool ceil_mode = BoolAttribute(step_, "ceil_mode");
  // With ceil_mode the first window may reach beyond the padded input, too, by
  // less than a stride.
  const int64_t largest = ceil_mode ? *padded + axis.stride - 1 : *padded;
  if (span > largest) {
    return InvalidField(
        Reason::kShapeMismatch, ".kernel_size",
        absl::StrCat(axis.kernel, " (", span, " with dilation ", axis.dilation,
                     ")"),
        absl::StrCat("a window not larger than the padded "
                     "input",
                     ceil_mode ? " and a stride - 1" : "", ", ", largest));
  }
  axis.out = (largest - span) / axis.stride + 1;
  // As in PyTorch, the last window begins inside the input or the left pad.
  if ((axis.out - 1) * axis.stride >= axis.in + axis.pad_begin) --axis.out;
  axis.pad_end = std::max(axis.pad_begin, (axis.out - 1) * axis.stride + span -
                                              axis.in - axis.pad_begin);
  return axis;
}

absl::StatusOr<std::vector<PoolAxis>> StepDims::PoolAxes() const {
  RETURN_IF_ERROR(CheckSpatial());
  ASSIGN_OR_RETURN(const auto kernel, AxisNumbers("kernel_size"));
  std::vector<int64_t> stride = kernel;
  if (HasAttribute(step_, "stride")) {
    ASSIGN_OR_RETURN(stride, AxisNumbers("stride"));
  }
  ASSIGN_OR_RETURN(const auto padding, AxisNumbers("padding"));
  std::vector<int64_t> dilation(axes(), 1);
  if (step_.op == Operator::kMaxPool) {
    ASSIGN_OR_RETURN(dilation, AxisNumbers("dilation"));
  }
  std::vector<PoolAxis> result;
  for (size_t i = 0; i < axes(); ++i) {
    ASSIGN_OR_RETURN(const PoolAxis axis,
                     MakePoolAxis({At(0)[i + 2], kernel[i], stride[i],
                                   dilation[i], padding[i], 0, 0}));
    result.push_back(axis);
  }
  return result;
}

// PyTorch's kernels for images look at the extents first: they copy an axis
// that stays as long as it is, and repeat each element of one that doubles
// (nearest), whatever the factor is.
bool StepDims::IgnoresFactor(const UpsampleAxis& axis) const {
  if (axes() != 2) return false;
  if (axis.out == axis.in) return true;
  return axis.out % 2 == 0 && axis.out / 2 == axis.in &&
         WordAttribute(step_, "mode") == "nearest";
}

absl::StatusOr<UpsampleAxis> StepDims::MakeUpsampleAxis(UpsampleAxis axis,
                                                        double factor) const {
  const auto in = static_cast<double>(axis.in);
  if (factor > 0) {
    const double size = std::floor(in * factor);
    // Beyond 2^53 not every integer is a double.
    if (size < 1 || size > 0x1p53) {
      return InvalidField(Reason::kOutOfRange, ".scale_factor",
                          absl::StrCat(factor),
                          absl::StrCat("a size of at least 1 from ", axis.in));
    }
    axis.out = static_cast<int64_t>(size);
  }
  const auto out = static_cast<double>(axis.out);
  if (axis.align_corners) {
    axis.step = axis.out > 1 ? (in - 1) / (out - 1) : 0;
  } else {
    axis.step = factor > 0 && !IgnoresFactor(axis) ? 1 / factor : in / out;
  }
  return axis;
}

absl::StatusOr<std::vector<UpsampleAxis>> StepDims::UpsampleAxes() const {
  RETURN_IF_ERROR(CheckSpatial());
  const bool align = BoolAttribute(step_, "align_corners");
  std::vector<double> factors = FloatsAttribute(step_, "scale_factor");
  if (factors.size() == 1) factors.resize(axes(), factors[0]);
  std::vector<int64_t> sizes(axes());
  if (HasAttribute(step_, "size")) {
    ASSIGN_OR_RETURN(sizes, AxisNumbers("size"));
  } else if (factors.size() != axes()) {
    return InvalidField(
        Reason::kShapeMismatch, ".scale_factor",
        absl::StrCat(factors.size(), " numbers"),
        absl::StrCat("one, or one per spatial axis of ", Text(At(0))));
  }
  std::vector<UpsampleAxis> result;
  for (size_t i = 0; i < axes(); ++i) {
    ASSIGN_OR_RETURN(const UpsampleAxis axis,
                     MakeUpsampleAxis({At(0)[i + 2], sizes[i], 0, align},
                                      factors.empty() ? 0 : factors[i]));
    result.push_back(axis);
  }
  return result;
}

}  // namespace convgrad

// Defines max_pool, avg_pool and their adaptive forms.
#include "backends/core/program/operators/windows/pooling.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::StatusOr<PoolAxis> MakeAxis(PoolAxis axis, bool ceil_mode) {
  auto checked_span = CheckedMul(axis.kernel - 1, axis.dilation);
  if (checked_span) checked_span = CheckedAdd(*checked_span, 1);
  auto padded = CheckedMul(axis.pad_begin, 2);
  if (padded) padded = CheckedAdd(*padded, axis.in);
  const auto rounded = padded ? CheckedAdd(*padded, axis.stride) : padded;
  if (!checked_span || !rounded) {
    return InvalidField(Reason::kOverflow, ".kernel_size", axis.kernel,
                        "sizes below 2^63 bytes");
  }
  const int64_t span = *checked_span;
  if (axis.pad_begin > span / 2) {
    return OutOfRange(".padding", axis.pad_begin,
                      absl::StrCat("at most half of the window's ", span));
  }
  if (axis.pad_begin > 0 && axis.dilation > axis.in) {
    return OutOfRange(".dilation", axis.dilation,
                      "at most the input's extent where it is padded");
  }
  // With ceil_mode, a single window may also reach beyond the padded input, by
  // less than a stride.
  const int64_t largest = ceil_mode ? *padded + axis.stride - 1 : *padded;
  if (span > largest) {
    return ShapeMismatch(
        ".kernel_size",
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

absl::StatusOr<std::vector<PoolAxis>> AxesOf(const StepDims& dims) {
  const ProgramStep& step = dims.step();
  RETURN_IF_ERROR(dims.CheckSpatial());
  ASSIGN_OR_RETURN(const auto kernel, dims.AxisNumbers("kernel_size"));
  std::vector<int64_t> stride = kernel;
  if (HasAttribute(step, "stride")) {
    ASSIGN_OR_RETURN(stride, dims.AxisNumbers("stride"));
  }
  ASSIGN_OR_RETURN(const auto padding, dims.AxisNumbers("padding"));
  std::vector<int64_t> dilation(dims.axes(), 1);
  if (step.op == Operator::kMaxPool) {
    ASSIGN_OR_RETURN(dilation, dims.AxisNumbers("dilation"));
  }
  std::vector<PoolAxis> result;
  for (size_t i = 0; i < dims.axes(); ++i) {
    ASSIGN_OR_RETURN(const PoolAxis axis,
                     MakeAxis({dims.At(0)[i + 2], kernel[i], stride[i],
                               dilation[i], padding[i], 0, 0},
                              BoolAttribute(step, "ceil_mode")));
    result.push_back(axis);
  }
  return result;
}

absl::StatusOr<Dims> Pool(const StepDims& step) {
  ASSIGN_OR_RETURN(const auto axes, AxesOf(step));
  Dims dims = {step.At(0)[0], step.At(0)[1]};
  for (const PoolAxis& axis : axes) dims.push_back(axis.out);
  return dims;
}

absl::StatusOr<Dims> AdaptivePool(const StepDims& step) {
  RETURN_IF_ERROR(step.CheckSpatial());
  ASSIGN_OR_RETURN(const auto size, step.AxisNumbers("output_size"));
  Dims dims = {step.At(0)[0], step.At(0)[1]};
  for (size_t i = 0; i < step.axes(); ++i) {
    const auto product = CheckedMul(size[i], step.At(0)[i + 2]);
    if (!product || !CheckedAdd(*product, size[i])) {
      return InvalidField(Reason::kOverflow, ".output_size", size[i],
                          "sizes below 2^63 bytes");
    }
    dims.push_back(size[i]);
  }
  return dims;
}

int64_t Taps(const StepDims& step, size_t axis) {
  const PoolAxis window = (*AxesOf(step))[axis];
  return SaturatingMul(window.out, std::min(window.kernel, window.in));
}

// Returns an upper bound: neighbouring windows share at most one element.
int64_t AdaptiveTaps(const StepDims& step, size_t axis) {
  const int64_t in = step.At(0)[axis + 2], out = step.result()[axis + 2];
  return in % out == 0 ? in : SaturatingAdd(in, out);
}

}  // namespace

std::vector<OperatorSpec> PoolingOperators() {
  return {{.op = Operator::kMaxPool,
           .name = "max_pool",
           .attributes = {Required(Ints("kernel_size", "", 1)),
                          Ints("stride", "", 1), Ints("padding", "0", 0),
                          Ints("dilation", "1", 1), Flag("ceil_mode", "false")},
           .has_kink = true,
           .infer = &Pool,
           .taps = &Taps},
          {.op = Operator::kAvgPool,
           .name = "avg_pool",
           .attributes = {Required(Ints("kernel_size", "", 1)),
                          Ints("stride", "", 1), Ints("padding", "0", 0),
                          Flag("ceil_mode", "false"),
                          Flag("count_include_pad", "true"),
                          Int("divisor_override", "", 1)},
           .infer = &Pool,
           .taps = &Taps},
          {.op = Operator::kAdaptiveAvgPool,
           .name = "adaptive_avg_pool",
           .attributes = {Required(Ints("output_size", "", 1))},
           .infer = &AdaptivePool,
           .taps = &AdaptiveTaps},
          {.op = Operator::kAdaptiveMaxPool,
           .name = "adaptive_max_pool",
           .attributes = {Required(Ints("output_size", "", 1))},
           .has_kink = true,
           .infer = &AdaptivePool,
           .taps = &AdaptiveTaps}};
}

std::vector<PoolAxis> PoolAxesOf(const ProgramStep& step,
                                 const ProgramShapes& shapes) {
  return *AxesOf(StepDims(step, shapes));
}

AxisWindow PaddedWindow(const PoolAxis& axis, int64_t index) {
  const int64_t begin = index * axis.stride - axis.pad_begin;
  return {begin, begin + axis.kernel};
}

int64_t AveragedElements(const PoolAxis& axis, int64_t index) {
  const AxisWindow window = PaddedWindow(axis, index);
  return std::min(window.end, axis.in + axis.pad_begin) - window.begin;
}

AxisWindow AdaptiveWindow(int64_t in, int64_t out, int64_t index) {
  return {index * in / out, CeilDiv((index + 1) * in, out)};
}

bool HasAdaptiveWindows(const ProgramStep& step) {
  return step.op == Operator::kAdaptiveAvgPool ||
         step.op == Operator::kAdaptiveMaxPool;
}

}  // namespace convgrad

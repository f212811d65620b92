#include "backends/core/convolution/conv_problem.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

std::string AxisField(absl::string_view name, size_t axis) {
  return absl::StrCat("problem.", name, "[", axis, "]");
}

std::string InputField(size_t axis) {
  return absl::StrCat("problem.input_dims[", axis + 2, "]");
}

absl::Status CheckAtLeast(absl::string_view field, int64_t value,
                          int64_t minimum) {
  if (value >= minimum) return absl::OkStatus();
  return OutOfRange(field, value, absl::StrCat("at least ", minimum));
}

absl::Status Overflow(absl::string_view field, const absl::AlphaNum& found) {
  return InvalidField(Reason::kOverflow, field, found,
                      "sizes below 2^63 bytes");
}

// Returns dilation * (kernel - 1) + 1, the extent that a kernel spans.
std::optional<int64_t> KernelSpan(const SpatialAxis& axis) {
  auto reach = CheckedMul(axis.dilation, axis.kernel - 1);
  return reach ? CheckedAdd(*reach, 1) : std::nullopt;
}

absl::Status CheckRanges(const ConvProblem& problem, size_t i) {
  const SpatialAxis& axis = problem.axes[i];
  RETURN_IF_ERROR(CheckAtLeast(InputField(i), axis.in, 1));
  RETURN_IF_ERROR(CheckAtLeast(AxisField("kernel", i), axis.kernel, 1));
  RETURN_IF_ERROR(CheckAtLeast(AxisField("stride", i), axis.stride, 1));
  RETURN_IF_ERROR(CheckAtLeast(AxisField("dilation", i), axis.dilation, 1));
  RETURN_IF_ERROR(CheckAtLeast(AxisField("pad_begin", i), axis.pad_begin, 0));
  RETURN_IF_ERROR(CheckAtLeast(AxisField("pad_end", i), axis.pad_end, 0));
  return CheckAtLeast(AxisField("output_padding", i), axis.output_padding, 0);
}

// Returns floor((in + pads - span) / stride) + 1 of an ordinary convolution.
absl::StatusOr<int64_t> ConvolutionExtent(const SpatialAxis& axis, size_t i) {
  const auto span = KernelSpan(axis);
  if (!span) return Overflow(AxisField("dilation", i), axis.dilation);
  auto padded = CheckedAdd(axis.pad_begin, axis.pad_end);
  if (padded) padded = CheckedAdd(*padded, axis.in);
  if (!padded) return Overflow(AxisField("pad_end", i), axis.pad_end);
  if (*span > *padded) {
    return ShapeMismatch(
        AxisField("kernel", i),
        absl::StrCat(axis.kernel, " (", *span, " with dilation ", axis.dilation,
                     ")"),
        absl::StrCat("a dilated kernel not larger than the padded input, ",
                     *padded));
  }
  return (*padded - *span) / axis.stride + 1;
}

// Returns (in-1)*stride - pads + span, without output_padding.
absl::StatusOr<int64_t> TransposedExtent(const SpatialAxis& axis, size_t i) {
  auto extent = CheckedMul(axis.in - 1, axis.stride);
  const auto span = KernelSpan(axis);
  if (extent && span) extent = CheckedAdd(*extent, *span);
  if (!extent || !span) return Overflow(InputField(i), axis.in);
  const auto pads = CheckedAdd(axis.pad_begin, axis.pad_end);
  if (!pads) return Overflow(AxisField("pad_end", i), axis.pad_end);
  return *extent - *pads;
}

absl::StatusOr<int64_t> OutputExtent(const ConvProblem& problem, size_t i) {
  const SpatialAxis& axis = problem.axes[i];
  if (!problem.transposed) return ConvolutionExtent(axis, i);
  ASSIGN_OR_RETURN(const int64_t bare, TransposedExtent(axis, i));
  const auto extent = CheckedAdd(bare, axis.output_padding);
  if (!extent) {
    return Overflow(AxisField("output_padding", i), axis.output_padding);
  }
  return *extent;
}

absl::Status CheckOutputPadding(const ConvProblem& problem, size_t i) {
  const SpatialAxis& axis = problem.axes[i];
  const std::string field = AxisField("output_padding", i);
  if (!problem.transposed) {
    if (axis.output_padding == 0) return absl::OkStatus();
    return OutOfRange(field, axis.output_padding,
                      "0 unless the convolution is transposed");
  }
  const int64_t limit = std::max(axis.stride, axis.dilation);
  if (axis.output_padding < limit) return absl::OkStatus();
  return OutOfRange(field, axis.output_padding,
                    absl::StrCat("less than max(stride, dilation) = ", limit));
}

absl::Status CheckAxis(const ConvProblem& problem, size_t i) {
  RETURN_IF_ERROR(CheckRanges(problem, i));
  RETURN_IF_ERROR(CheckOutputPadding(problem, i));
  ASSIGN_OR_RETURN(const int64_t out, OutputExtent(problem, i));
  const std::string field = AxisField("output_dims", i);
  if (out < 1) {
    return ShapeMismatch(field, out, "at least 1");
  }
  if (problem.axes[i].out == out) return absl::OkStatus();
  return ShapeMismatch(field, problem.axes[i].out, out);
}

absl::Status CheckChannels(const ConvProblem& problem) {
  RETURN_IF_ERROR(CheckAtLeast("problem.input_dims[0]", problem.batch, 0));
  RETURN_IF_ERROR(
      CheckAtLeast("problem.input_dims[1]", problem.in_channels, 1));
  RETURN_IF_ERROR(
      CheckAtLeast("problem.out_channels", problem.out_channels, 1));
  RETURN_IF_ERROR(CheckAtLeast("problem.groups", problem.groups, 1));
  for (const auto& [field, channels] :
       {std::pair{"problem.input_dims[1]", problem.in_channels},
        std::pair{"problem.out_channels", problem.out_channels}}) {
    if (channels % problem.groups == 0) continue;
    return ShapeMismatch(
        field, channels,
        absl::StrCat("a multiple of groups = ", problem.groups));
  }
  return absl::OkStatus();
}

absl::Status CheckByteSizes(const ConvProblem& problem) {
  // The widest element type of convolutions. Validation of the descriptors
  // checks padded layouts.
  constexpr int64_t kBytesPerElement = 4;
  for (const auto& [field, dims] :
       {std::pair{"problem.input_dims", InputDims(problem)},
        std::pair{"problem.kernel", WeightDims(problem)},
        std::pair{"problem.output_dims", OutputDims(problem)}}) {
    // Check the other extents even if the batch is 0.
    Dims extents = dims;
    extents[0] = std::max<int64_t>(extents[0], 1);
    const auto elements = CheckedProduct(extents);
    if (!elements || !CheckedMul(*elements, kBytesPerElement)) {
      return Overflow(field, ToString(dims));
    }
  }
  return absl::OkStatus();
}

// Sets the pads with which an ordinary axis of `in` inputs gives ceil(in /
// stride).
absl::Status SetSamePads(bool odd_one_first, int64_t in, size_t i,
                         SpatialAxis* axis) {
  const auto span = KernelSpan(*axis);
  const int64_t out = (in - 1) / axis->stride + 1;
  auto total = CheckedMul(out - 1, axis->stride);
  if (total && span) total = CheckedAdd(*total, *span - in);
  if (!total || !span) return Overflow(AxisField("kernel", i), axis->kernel);
  const int64_t pads = std::max<int64_t>(*total, 0);
  axis->pad_begin = odd_one_first ? pads - pads / 2 : pads / 2;
  axis->pad_end = pads - axis->pad_begin;
  return absl::OkStatus();
}

absl::Status ResolvePads(const ShapeHints& hints, size_t i,
                         ConvProblem* problem) {
  SpatialAxis* axis = &problem->axes[i];
  if (hints.padding == Padding::kExplicit) return absl::OkStatus();
  axis->pad_begin = axis->pad_end = 0;
  if (hints.padding == Padding::kValid) return absl::OkStatus();
  int64_t in = axis->in;
  if (problem->transposed) {
    // Named padding refers to the mirrored convolution, whose input is this
    // one's output.
    const auto same = CheckedMul(axis->in, axis->stride);
    if (!hints.output && !same) return Overflow(InputField(i), axis->in);
    in = hints.output ? (*hints.output)[i] : *same;
    if (in < 1) {
      return ShapeMismatch(AxisField("output_dims", i), in, "at least 1");
    }
  }
  return SetSamePads(hints.padding == Padding::kSameLower, in, i, axis);
}

// Sets `out`, and output_padding if the output extent determines it.
absl::Status ResolveOutput(const ShapeHints& hints, size_t i,
                           ConvProblem* problem) {
  SpatialAxis* axis = &problem->axes[i];
  const bool same = hints.padding == Padding::kSameUpper ||
                    hints.padding == Padding::kSameLower;
  if (problem->transposed && (hints.output || same)) {
    ASSIGN_OR_RETURN(const int64_t bare, TransposedExtent(*axis, i));
    // SAME padding without output dims gives in * stride (checked above).
    const int64_t wanted =
        hints.output ? (*hints.output)[i] : axis->in * axis->stride;
    const int64_t derived = CheckedAdd(wanted, -bare).value_or(-1);
    if (derived < 0) {
      return ShapeMismatch(AxisField("output_dims", i), wanted,
                           absl::StrCat("at least ", bare));
    }
    if (hints.has_output_padding && derived != axis->output_padding) {
      return ShapeMismatch(
          AxisField("output_padding", i), axis->output_padding,
          absl::StrCat(derived, ", which output_dims implies"));
    }
    axis->output_padding = derived;
    axis->out = wanted;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(axis->out, OutputExtent(*problem, i));
  if (hints.output && (*hints.output)[i] != axis->out) {
    return ShapeMismatch(AxisField("output_dims", i), (*hints.output)[i],
                         axis->out);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConvProblem> Resolve(ConvProblem problem,
                                    const ShapeHints& hints) {
  RETURN_IF_ERROR(CheckChannels(problem));
  if (hints.output && hints.output->size() != problem.axes.size()) {
    return ShapeMismatch("problem.output_dims",
                         absl::StrCat(hints.output->size(), " spatial extents"),
                         problem.axes.size());
  }
  for (size_t i = 0; i < problem.axes.size(); ++i) {
    RETURN_IF_ERROR(CheckRanges(problem, i));
    RETURN_IF_ERROR(ResolvePads(hints, i, &problem));
    RETURN_IF_ERROR(ResolveOutput(hints, i, &problem));
  }
  RETURN_IF_ERROR(Validate(problem));
  return problem;
}

absl::Status Validate(const ConvProblem& problem) {
  RETURN_IF_ERROR(CheckChannels(problem));
  if (problem.axes.size() > 3) {
    return OutOfRange("problem.input_dims",
                      absl::StrCat(problem.axes.size(), " spatial axes"),
                      "0 to 3");
  }
  for (size_t i = 0; i < problem.axes.size(); ++i) {
    RETURN_IF_ERROR(CheckAxis(problem, i));
  }
  RETURN_IF_ERROR(CheckByteSizes(problem));
  if (problem.bias && !IsBiasShape(problem, *problem.bias)) {
    return ShapeMismatch(
        "problem.bias", ToString(*problem.bias),
        absl::StrCat("[], [1], [", problem.out_channels,
                     "], or each axis 1 or that of the output, ",
                     ToString(OutputDims(problem))));
  }
  return absl::OkStatus();
}

}  // namespace convgrad

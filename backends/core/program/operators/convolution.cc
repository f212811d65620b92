// Defines conv, conv_transpose and linear.
#include "backends/core/program/operators/convolution.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status SetAxes(const StepDims& dims, ConvProblem* problem,
                     ShapeHints* hints) {
  ASSIGN_OR_RETURN(const auto stride, dims.AxisNumbers("stride"));
  ASSIGN_OR_RETURN(const auto dilation, dims.AxisNumbers("dilation"));
  const std::string word = WordAttribute(dims.step(), "padding");
  std::vector<int64_t> padding(dims.axes()), output_padding(dims.axes());
  if (word.empty()) {
    ASSIGN_OR_RETURN(padding, dims.AxisNumbers("padding"));
  } else {
    hints->padding = word == "same" ? Padding::kSameUpper : Padding::kValid;
  }
  if (problem->transposed) {
    ASSIGN_OR_RETURN(output_padding, dims.AxisNumbers("output_padding"));
  }
  for (size_t i = 0; i < dims.axes(); ++i) {
    if (word == "same" && stride[i] != 1) {
      return InvalidField(Reason::kUnsupported, ".stride", stride[i],
                          "1 where padding is same");
    }
    SpatialAxis axis;
    axis.in = dims.At(0)[i + 2];
    axis.kernel = dims.At(1)[i + 2];
    axis.stride = stride[i];
    axis.dilation = dilation[i];
    axis.pad_begin = axis.pad_end = padding[i];
    axis.output_padding = output_padding[i];
    problem->axes.push_back(axis);
  }
  return absl::OkStatus();
}

absl::StatusOr<ConvProblem> ResolvedOf(const StepDims& dims) {
  const ProgramStep& step = dims.step();
  const Dims& x = dims.At(0);
  const Dims& weight = dims.At(1);
  const bool is_linear = step.op == Operator::kLinear;
  if (!is_linear && weight.size() != x.size()) {
    return BadShape(".x", x,
                    absl::StrCat("the weight's rank, ", weight.size()));
  }
  ConvProblem problem;
  problem.transposed = step.op == Operator::kConvTranspose;
  // A linear step has a row for each index of the leading axes.
  problem.batch =
      is_linear ? *CheckedProduct(absl::MakeConstSpan(x).first(x.size() - 1))
                : x[0];
  problem.in_channels = is_linear ? x.back() : x[1];
  problem.groups = is_linear ? 1 : IntAttribute(step, "groups");
  const auto out_channels =
      problem.transposed ? CheckedMul(weight[1], problem.groups) : weight[0];
  if (!out_channels) {
    return InvalidField(Reason::kOverflow, ".groups", problem.groups,
                        "sizes below 2^63 bytes");
  }
  problem.out_channels = *out_channels;
  if (dims.Has(2)) problem.bias = dims.At(2);
  ShapeHints hints;
  if (!is_linear) RETURN_IF_ERROR(SetAxes(dims, &problem, &hints));
  auto resolved = Resolve(std::move(problem), hints);
  if (!resolved.ok()) return WithFieldPrefix(resolved.status(), ".");
  return resolved;
}

absl::StatusOr<Dims> Convolution(const StepDims& step) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ResolvedOf(step));
  if (WeightDims(problem) != step.At(1)) {
    return BadShape(".weight", step.At(1), ToString(WeightDims(problem)));
  }
  if (step.Has(2) && step.At(2) != PerChannelBiasDims(problem)) {
    return BadShape(".bias", step.At(2), ToString(PerChannelBiasDims(problem)));
  }
  if (step.step().op != Operator::kLinear) return OutputDims(problem);
  Dims dims = step.At(0);
  dims.back() = problem.out_channels;
  return dims;
}

int64_t Macs(const StepDims& step) { return MultiplyAdds(*ResolvedOf(step)); }

OperatorSpec SpecWith(Operator op, absl::string_view name,
                      std::vector<AttributeSpec> attributes) {
  const bool is_linear = op == Operator::kLinear;
  return {.op = op,
          .name = name,
          .operands = {{.name = "x"},
                       {.name = "weight",
                        .kind = OperandKind::kWeight,
                        .least_rank = is_linear ? size_t{2} : size_t{3},
                        .most_rank = is_linear ? size_t{2} : size_t{5},
                        .may_be_value = true},
                       {.name = "bias",
                        .kind = OperandKind::kParameter,
                        .optional = true}},
          .attributes = std::move(attributes),
          .is_product = true,
          .features = is_linear ? FeatureAxis::kLast : FeatureAxis::kSecond,
          .infer = &Convolution,
          .macs = &Macs};
}

}  // namespace

std::vector<OperatorSpec> ConvolutionOperators() {
  const AttributeSpec groups = Int("groups", "1", 1);
  AttributeSpec padding = Ints("padding", "0", 0);
  padding.words = "same|valid";
  return {SpecWith(Operator::kConv, "conv",
                   {Ints("stride", "1", 1), padding, Ints("dilation", "1", 1),
                    groups}),
          SpecWith(Operator::kConvTranspose, "conv_transpose",
                   {Ints("stride", "1", 1), Ints("padding", "0", 0),
                    Ints("output_padding", "0", 0), Ints("dilation", "1", 1),
                    groups}),
          SpecWith(Operator::kLinear, "linear", {})};
}

ConvProblem ProblemOf(const ProgramStep& step, const ProgramShapes& shapes) {
  return *ResolvedOf(StepDims(step, shapes));
}

}  // namespace convgrad

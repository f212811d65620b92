// Defines sum, mean, amax, norm and var.
#include "backends/core/program/operators/reductions.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::StatusOr<ReducedAxes> AxesOf(const StepDims& step) {
  const Dims& x = step.At(0);
  const auto rank = static_cast<int64_t>(x.size());
  ReducedAxes axes = {.kept = x,
                      .keeps_dims = BoolAttribute(step.step(), "keepdim"),
                      .is_spatial = true,
                      .is_reduced = std::vector<bool>(x.size())};
  for (const int64_t given : IntsAttribute(step.step(), "dim", 1)) {
    const int64_t axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank || axes.is_reduced[axis]) {
      return OutOfRange(".dim", given,
                        absl::StrCat("axes of ", ToString(x), ", each once"));
    }
    axes.is_reduced[axis] = true;
    axes.kept[axis] = 1;
    if (axis < 2) axes.is_spatial = false;
  }
  return axes;
}

absl::StatusOr<Dims> Reduce(const StepDims& step) {
  ASSIGN_OR_RETURN(const ReducedAxes axes, AxesOf(step));
  const Dims dims = axes.result();
  if (dims.size() >= kMinValueRank) return dims;
  return BadShape(".dim", dims, "two axes at least, or keepdim=true");
}

// Returns kAny for reductions that a pooling over an image's spatial axes can
// compute, and kLast, i.e. rows, for others.
FeatureAxis FeaturesOf(const StepDims& step) {
  const auto axes = AxesOf(step);
  const Operator op = step.step().op;
  const bool is_pooling = op == Operator::kMean || op == Operator::kSum;
  return axes.ok() && is_pooling && axes->is_spatial && axes->keeps_dims
             ? FeatureAxis::kAny
             : FeatureAxis::kLast;
}

int64_t ElementsOf(const StepDims& step) {
  return CheckedProduct(step.At(0)).value_or(0);
}

OperatorSpec Reduction(Operator op, absl::string_view name) {
  return {
      .op = op,
      .name = name,
      .attributes = {Required(Ints("dim", "")), Flag("keepdim", "false")},
      .features = FeatureAxis::kAny,
      .features_of = &FeaturesOf,
      .infer = &Reduce,
      .taps = [](const StepDims& s, size_t axis) { return s.At(0)[axis + 2]; },
      .macs = &ElementsOf};
}

}  // namespace

std::vector<OperatorSpec> ReductionOperators() {
  OperatorSpec amax = Reduction(Operator::kAmax, "amax");
  amax.has_kink = true;
  OperatorSpec var = Reduction(Operator::kVar, "var");
  var.attributes.push_back(Int("correction", "1", 0));
  return {Reduction(Operator::kMean, "mean"), Reduction(Operator::kSum, "sum"),
          amax, Reduction(Operator::kNorm, "norm"), var};
}

Dims ReducedAxes::result() const {
  if (keeps_dims) return kept;
  Dims dims;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!is_reduced[i]) dims.push_back(kept[i]);
  }
  return dims;
}

ReducedAxes ReducedAxesOf(const ProgramStep& step,
                          const ProgramShapes& shapes) {
  return *AxesOf(StepDims(step, shapes));
}

bool IsReduction(const ProgramStep& step) {
  return SpecOf(step.op).infer == &Reduce;
}

}  // namespace convgrad

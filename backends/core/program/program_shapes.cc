#include "backends/core/program/program_shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Maximum rank of inputs.
constexpr size_t kMaxInputRank = 5;

absl::Status CheckExtents(const Dims& dims, const std::string& field,
                          size_t least, size_t most) {
  if (dims.size() < least || dims.size() > most) {
    return BadShape(field, dims, absl::StrCat("rank ", least, " to ", most));
  }
  for (const int64_t extent : dims) {
    if (extent < 1) return BadShape(field, dims, "extents of at least 1");
  }
  return absl::OkStatus();
}

// Returns `total` plus the bytes of `dims` in double.
absl::StatusOr<int64_t> AddBytes(int64_t total, const Dims& dims,
                                 const std::string& field) {
  const auto count = CheckedProduct(dims);
  const auto bytes = count ? CheckedMul(*count, sizeof(double)) : count;
  const auto sum = bytes ? CheckedAdd(total, *bytes) : bytes;
  if (sum) return *sum;
  return InvalidField(Reason::kOverflow, field, ToString(dims),
                      "values of less than 2^63 bytes together");
}

// Returns the pairs of an output and an input in its window.
int64_t TapsOf(const OperatorSpec& spec, const StepDims& step) {
  const Dims& result = step.result();
  int64_t taps = SaturatingMul(result[0], result[1]);
  for (size_t i = 2; i < result.size(); ++i) {
    taps = SaturatingMul(taps, spec.taps(step, i - 2));
  }
  return taps;
}

// Returns the multiply-adds of the forward.
int64_t MacsOf(const StepDims& step) {
  const OperatorSpec& spec = SpecOf(step.step().op);
  if (spec.view != nullptr) return 0;
  if (spec.macs != nullptr) return spec.macs(step);
  if (spec.taps != nullptr) return TapsOf(spec, step);
  // InferShapes has checked the sizes. The work of a loss depends on its
  // operand's size.
  return std::max(CheckedProduct(step.result()).value_or(0),
                  CheckedProduct(step.At(0)).value_or(0));
}

absl::Status CheckRanks(const StepDims& step) {
  const OperatorSpec& spec = SpecOf(step.step().op);
  for (size_t i = 0; i < step.step().operands.size(); ++i) {
    const OperandSpec& operand = OperandSpecAt(spec, i);
    const bool is_weight = operand.may_be_value && step.Has(i);
    if (is_weight && (step.At(i).size() < operand.least_rank ||
                      step.At(i).size() > operand.most_rank)) {
      return BadShape(
          absl::StrCat(".", operand.name), step.At(i),
          absl::StrCat("rank ", operand.least_rank, " to ", operand.most_rank));
    }
    const bool is_bounded = step.Has(i) && !operand.is_parameter();
    if (!is_bounded || step.At(i).size() <= spec.max_rank()) continue;
    return BadShape(
        absl::StrCat(".", operand.name), step.At(i),
        absl::StrCat("rank ", kMinValueRank, " to ", spec.max_rank()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Dims> Infer(const StepDims& step) {
  RETURN_IF_ERROR(CheckRanks(step));
  const auto infer = SpecOf(step.step().op).infer;
  if (infer != nullptr) return infer(step);
  return step.At(0);
}

}  // namespace

absl::StatusOr<ProgramShapes> InferShapes(const Program& program,
                                          const std::vector<Dims>& inputs) {
  if (inputs.size() != program.inputs.size()) {
    return Missing("inputs", absl::StrCat(inputs.size(), " tensors"),
                   program.inputs.size());
  }
  ProgramShapes shapes;
  int64_t bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ProgramInput& input = program.inputs[i];
    const std::string field = absl::StrCat("inputs.", input.name, ".dims");
    const size_t least = input.is_index ? 1 : kMinValueRank;
    const size_t most = kMaxInputRank - (input.is_index ? 1 : 0);
    RETURN_IF_ERROR(CheckExtents(inputs[i], field, least, most));
    ASSIGN_OR_RETURN(bytes, AddBytes(bytes, inputs[i], field));
    shapes.dims.emplace(input.name, inputs[i]);
    if (input.is_index) shapes.indices.insert(input.name);
  }
  for (const ProgramParameter& parameter : program.parameters) {
    ASSIGN_OR_RETURN(bytes,
                     AddBytes(bytes, parameter.dims,
                              absl::StrCat("parameters.", parameter.name)));
    shapes.dims.emplace(parameter.name, parameter.dims);
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    const std::string path = StepPath(program, i);
    const StepDims step_dims(step, shapes);
    const auto dims = Infer(step_dims);
    if (!dims.ok()) return WithFieldPrefix(dims.status(), path);
    ASSIGN_OR_RETURN(bytes, AddBytes(bytes, *dims, path));
    shapes.dims.emplace(step.result, *dims);
    shapes.flops.push_back(SaturatingMul(MacsOf(step_dims), 2));
  }
  return shapes;
}

}  // namespace convgrad

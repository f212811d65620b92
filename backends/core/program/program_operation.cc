#include "backends/core/program/program_operation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

bool IsForward(ProgramPart part) { return part != ProgramPart::kBackward; }

// Indexed by ProgramPart.
struct PartRow {
  absl::string_view name;  // in metrics
  absl::string_view text;
  int64_t forwards;  // as much work as so many forwards
};
constexpr PartRow kParts[] = {{"run", "forward", 1},
                              {"run", "forward_tape", 1},
                              {"backward_program", "backward", 2},
                              {"train", "train", 3}};

const PartRow& RowOf(ProgramPart part) {
  return kParts[static_cast<size_t>(part)];
}

TensorDescriptor RowMajor(DataType dtype, const Dims& dims) {
  return {dtype, Layout::kNCX, dims};
}

TensorUses UsesOf(const std::vector<TensorDescriptor>& tensors) {
  TensorUses uses;
  for (const TensorDescriptor& tensor : tensors) uses.push_back({&tensor});
  return uses;
}

bool HasRandomStep(const Program& program) {
  return std::any_of(program.steps.begin(), program.steps.end(),
                     [](const ProgramStep& step) {
                       return SpecOf(step.op).is_random && IsTraining(step);
                     });
}

absl::Status CheckInputs(const ProgramRequest& request) {
  const Program& program = *request.program;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const TensorDescriptor& tensor = request.inputs[i];
    const std::string path = absl::StrCat("inputs.", program.inputs[i].name);
    const bool is_index = program.inputs[i].is_index;
    if (is_index != (tensor.dtype == DataType::kI64)) {
      return InvalidField(Reason::kDtypeMismatch, path + ".dtype",
                          NameOf(tensor.dtype),
                          is_index ? "i64" : "f32, bf16, f16, u8 or u16");
    }
    const bool fits = tensor.layout == Layout::kNCX ||
                      (tensor.layout == Layout::kNXC && !is_index);
    if (!fits) {
      return InvalidField(Reason::kLayoutMismatch, path + ".layout",
                          NameOf(tensor.layout),
                          is_index ? "NCX" : "NCX or NXC");
    }
  }
  return absl::OkStatus();
}

// Checks that `names` are among `known`, none twice.
absl::Status CheckKnown(absl::string_view field,
                        const std::vector<std::string>& names,
                        absl::flat_hash_set<absl::string_view> known,
                        absl::string_view expected) {
  for (const std::string& name : names) {
    if (known.erase(name) == 1) continue;
    return InvalidField(Reason::kNotFound, field, name,
                        absl::StrCat(expected, ", each once"));
  }
  return absl::OkStatus();
}

absl::Status CheckComputeDtype(DataType dtype) {
  if (dtype == DataType::kF32 || dtype == DataType::kBF16) {
    return absl::OkStatus();
  }
  return MakeError(IsFloating(dtype) ? absl::StatusCode::kUnimplemented
                                     : absl::StatusCode::kInvalidArgument,
                   {Reason::kUnsupported, "compute_dtype",
                    std::string(NameOf(dtype)), "f32 or bf16"});
}

absl::Status CheckNames(const ProgramRequest& request,
                        const ProgramShapes& shapes) {
  const Program& program = *request.program;
  absl::flat_hash_set<absl::string_view> results;
  for (const ProgramStep& step : program.steps) results.insert(step.result);
  RETURN_IF_ERROR(CheckKnown("fetched", request.fetched, std::move(results),
                             "the result of a step"));
  RETURN_IF_ERROR(CheckKnown(
      "output_gradients", request.output_gradients,
      {program.outputs.begin(), program.outputs.end()},
      absl::StrCat("an output: ", absl::StrJoin(program.outputs, ", "))));
  if (request.part == ProgramPart::kBackward &&
      request.output_gradients.empty()) {
    return Missing("output_gradients", "none",
                   "the gradient of at least one output");
  }
  for (size_t i = 0; i < request.input_gradients.size(); ++i) {
    if (!request.input_gradients[i] || !program.inputs[i].is_index) continue;
    return InvalidField(Reason::kUnsupported, "input_gradients",
                        program.inputs[i].name, "an input that isn't an index");
  }
  const Dims& first = shapes.dims.at(program.outputs[0]);
  if (request.part == ProgramPart::kTrain && !first.empty()) {
    return ShapeMismatch("backward",
                         absl::StrCat(program.outputs[0], " ", ToString(first)),
                         "a scalar as the program's first output, its loss");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ProgramOperation>> ProgramOperation::Make(
    ProgramRequest request) {
  const Program& program = *request.program;
  if (request.inputs.size() != program.inputs.size()) {
    return Missing("inputs", absl::StrCat(request.inputs.size(), " tensors"),
                   program.inputs.size());
  }
  RETURN_IF_ERROR(CheckComputeDtype(request.compute_dtype));
  RETURN_IF_ERROR(CheckInputs(request));
  if (request.fetched.empty() && IsForward(request.part)) {
    request.fetched = program.outputs;
  }
  if (request.part == ProgramPart::kForward) request.recompute = false;
  request.input_gradients.resize(program.inputs.size());
  std::vector<Dims> dims;
  for (const TensorDescriptor& input : request.inputs) {
    dims.push_back(input.dims);
  }
  std::shared_ptr<ProgramOperation> operation(new ProgramOperation);
  ASSIGN_OR_RETURN(operation->shapes_, InferShapes(program, dims));
  RETURN_IF_ERROR(CheckNames(request, operation->shapes_));
  operation->request_ = std::move(request);
  operation->program_text_ = ToString(program);
  if (HasRandomStep(program)) {
    operation->randomness_ = RowMajor(DataType::kI64, {2});
  }
  operation->SetOperands();
  operation->SetResults();
  return operation;
}

void ProgramOperation::SetOperands() {
  if (request_.part == ProgramPart::kBackward) {
    operands_.push_back(RowMajor(DataType::kU8, {request_.tape_bytes}));
    for (const std::string& name : request_.output_gradients) {
      operands_.push_back(RowMajor(DataType::kF32, shapes_.dims.at(name)));
    }
  } else {
    operands_ = request_.inputs;
  }
  for (const ProgramParameter& parameter : program().parameters) {
    operands_.push_back(ParameterDescriptor(parameter));
  }
  if (IsForward(request_.part) && randomness_) {
    operands_.push_back(*randomness_);
  }
}

void ProgramOperation::SetResults() {
  const ProgramPart part = request_.part;
  if (IsForward(part)) {
    for (const std::string& name : request_.fetched) {
      results_.push_back(RowMajor(DataType::kF32, shapes_.dims.at(name)));
    }
    for (const size_t index : UpdatedStatistics(program())) {
      results_.push_back(ParameterDescriptor(program().parameters[index]));
    }
  }
  if (part == ProgramPart::kForwardTape) {
    results_.push_back(RowMajor(DataType::kU8, {request_.tape_bytes}));
  }
  if (part == ProgramPart::kForward || part == ProgramPart::kForwardTape) {
    return;
  }
  for (size_t i = 0; i < request_.input_gradients.size(); ++i) {
    if (!request_.input_gradients[i]) continue;
    results_.push_back(RowMajor(DataType::kF32, request_.inputs[i].dims));
  }
  if (!request_.parameter_gradients) return;
  for (const ProgramParameter& parameter : program().parameters) {
    if (!parameter.trainable) continue;
    results_.push_back(ParameterDescriptor(parameter));
  }
}

absl::string_view ProgramOperation::name() const {
  return RowOf(request_.part).name;
}

std::string ProgramOperation::text() const {
  std::string inputs;
  for (const TensorDescriptor& input : request_.inputs) {
    absl::StrAppend(&inputs, " ", ToString(input));
  }
  const std::string wanted(absl::StrJoin(
      request_.input_gradients, "",
      [](std::string* out, bool is) { absl::StrAppend(out, is ? 1 : 0); }));
  return absl::StrCat("program ", RowOf(request_.part).text, " ",
                      NameOf(request_.compute_dtype), inputs, " fetched ",
                      absl::StrJoin(request_.fetched, ","), " from ",
                      absl::StrJoin(request_.output_gradients, ","), " to ",
                      wanted, request_.parameter_gradients ? " parameters" : "",
                      request_.recompute ? " recompute" : "",
                      request_.fast ? " fast" : "",
                      request_.fuse ? "\n" : " unfused\n", program_text_);
}

int64_t ProgramOperation::flops() const {
  int64_t forward = 0;
  for (const int64_t flops : shapes_.flops) {
    forward = SaturatingAdd(forward, flops);
  }
  return SaturatingMul(forward, RowOf(request_.part).forwards);
}

TensorUses ProgramOperation::OperandUses() const { return UsesOf(operands_); }

TensorUses ProgramOperation::ResultUses() const { return UsesOf(results_); }

std::vector<size_t> ProgramOperation::weight_positions() const {
  if (request_.part != ProgramPart::kForward) return {};
  std::vector<size_t> positions(program().parameters.size());
  std::iota(positions.begin(), positions.end(), program().inputs.size());
  return positions;
}

const ProgramOperation* AsProgram(const Operation& operation) {
  return dynamic_cast<const ProgramOperation*>(&operation);
}

}  // namespace convgrad

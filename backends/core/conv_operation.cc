#include "backends/core/conv_operation.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

std::string OperandField(Operand operand, absl::string_view part) {
  return absl::StrCat("operands.", NameOf(operand), part);
}

// Returns the shortest text that no other float shares.
std::string ExactText(float value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

bool IsWeight(Operand operand) { return operand == Operand::kWeight; }
bool IsWeight(Result result) { return result == Result::kGradWeight; }
bool IsBias(Operand operand) { return operand == Operand::kBias; }
bool IsBias(Result result) { return result == Result::kGradBias; }

// Operands whose dtype must be the request's one dtype.
constexpr std::array<Operand, 3> kPrimary = {Operand::kInput, Operand::kWeight,
                                             Operand::kGradOutput};

// Returns whether a bias or its gradient may have these dims. Where the problem
// names the shape it must be that one: backends read it from there.
bool IsBiasOfProblem(const ConvProblem& problem, Operand, const Dims& dims) {
  return problem.bias ? dims == *problem.bias : IsBiasShape(problem, dims);
}
bool IsBiasOfProblem(const ConvProblem& problem, Result role,
                     const Dims& dims) {
  return dims == DimsOf(problem, role);
}

// Checks dims, layout and size of the tensor at `field`, an operand or a
// result. Requires: CheckC0, without which packed sizes have no meaning.
template <typename Role>
absl::Status CheckDescriptor(const ConvOperation& operation, Role role,
                             const TensorDescriptor& tensor,
                             absl::string_view field) {
  const ConvProblem& problem = operation.problem;
  if (IsBias(role) ? !IsBiasOfProblem(problem, role, tensor.dims)
                   : tensor.dims != DimsOf(problem, role)) {
    const Dims expected =
        IsBias(role) ? problem.bias.value_or(PerChannelBiasDims(problem))
                     : DimsOf(problem, role);
    return InvalidField(Reason::kShapeMismatch, absl::StrCat(field, ".dims"),
                        ToString(absl::MakeConstSpan(tensor.dims)),
                        ToString(absl::MakeConstSpan(expected)));
  }
  if (IsBias(role)) {
    if (tensor.layout == Layout::kNCX) return absl::OkStatus();
    return InvalidField(Reason::kLayoutMismatch, absl::StrCat(field, ".layout"),
                        NameOf(tensor.layout), "none: a bias is row-major");
  }
  if (IsWeightLayout(tensor.layout) != IsWeight(role)) {
    return InvalidField(Reason::kLayoutMismatch, absl::StrCat(field, ".layout"),
                        NameOf(tensor.layout),
                        IsWeight(role)
                            ? "a weight layout: OIX, OXI, XIO, FRACTAL_Z_3D"
                            : "an activation layout: NCX, NXC, NDC1HWC0");
  }
  if (tensor.layout == Layout::kFractalZ3D && tensor.groups != problem.groups) {
    return InvalidField(Reason::kShapeMismatch, absl::StrCat(field, ".groups"),
                        absl::StrCat(tensor.groups),
                        absl::StrCat(problem.groups, ", the problem's"));
  }
  if (!ByteSize(tensor)) {
    return InvalidField(Reason::kOverflow, absl::StrCat(field, ".dims"),
                        ToString(absl::MakeConstSpan(tensor.dims)),
                        "a packed size below 2^63 bytes");
  }
  return absl::OkStatus();
}

absl::Status CheckPrimaryDtypes(const ConvOperation& operation) {
  std::optional<Operand> first;
  for (Operand operand : kPrimary) {
    if (!operation.operand(operand)) continue;
    if (!first) {
      first = operand;
      continue;
    }
    const DataType expected = operation.operand(*first)->dtype;
    const DataType found = operation.operand(operand)->dtype;
    if (found == expected) continue;
    return InvalidField(
        Reason::kDtypeMismatch, OperandField(operand, ".dtype"), NameOf(found),
        absl::StrCat(NameOf(expected), ", the dtype of ", NameOf(*first)));
  }
  return absl::OkStatus();
}

absl::Status CheckMixedDtype(DataType operands, DataType found,
                             absl::string_view field) {
  if (found == operands || found == DataType::kF32) return absl::OkStatus();
  return InvalidField(Reason::kDtypeMismatch, field, NameOf(found),
                      absl::StrCat("f32 or the operands' ", NameOf(operands)));
}

absl::Status CheckOperands(const ConvOperation& operation) {
  for (Operand operand : kAllOperands) {
    const auto& tensor = operation.operand(operand);
    if (!tensor) {
      if (!IsNeeded(operation, operand)) continue;
      return InvalidField(Reason::kMissing, OperandField(operand, ""),
                          "nothing",
                          "a tensor, which the results asked for need");
    }
    RETURN_IF_ERROR(CheckDescriptor(operation, operand, *tensor,
                                    OperandField(operand, "")));
  }
  RETURN_IF_ERROR(CheckPrimaryDtypes(operation));
  const DataType dtype = OperandDtype(operation);
  for (Operand operand : kAllOperands) {
    if (!operation.operand(operand)) continue;
    RETURN_IF_ERROR(CheckMixedDtype(dtype, operation.operand(operand)->dtype,
                                    OperandField(operand, ".dtype")));
  }
  return absl::OkStatus();
}

absl::Status CheckResults(const ConvOperation& operation) {
  if (operation.results.empty()) {
    return InvalidField(Reason::kMissing, "results", "an empty list",
                        "at least one result");
  }
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    const std::string field = absl::StrCat("results[", i, "]");
    const bool forward = operation.direction == Direction::kForward;
    if ((request.which == Result::kOutput) != forward) {
      return InvalidField(Reason::kInvalidEnum, absl::StrCat(field, ".which"),
                          NameOf(request.which),
                          forward ? "output" : "a gradient");
    }
    if (operation.result(request.which) != &request) {
      return InvalidField(Reason::kDuplicate, absl::StrCat(field, ".which"),
                          absl::StrCat(NameOf(request.which), " again"),
                          "each result once");
    }
    if (!std::isfinite(request.scale)) {
      return InvalidField(Reason::kOutOfRange, absl::StrCat(field, ".scale"),
                          absl::StrCat(request.scale), "a finite number");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckResultDescriptors(const ConvOperation& operation) {
  const DataType dtype = OperandDtype(operation);
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    const std::string field = absl::StrCat("results[", i, "]");
    RETURN_IF_ERROR(
        CheckDescriptor(operation, request.which, request.descriptor, field));
    RETURN_IF_ERROR(CheckMixedDtype(dtype, request.descriptor.dtype,
                                    absl::StrCat(field, ".dtype")));
  }
  return absl::OkStatus();
}

absl::Status CheckOneC0(int64_t c0, DataType dtype, absl::string_view field,
                        std::optional<int64_t>* seen) {
  const bool valid = c0 == 16 || (c0 == 8 && dtype == DataType::kF32);
  if (!valid) {
    return InvalidField(Reason::kOutOfRange, field, absl::StrCat(c0),
                        dtype == DataType::kF32 ? "8 or 16" : "16");
  }
  if (!*seen) *seen = c0;
  if (**seen == c0) return absl::OkStatus();
  return InvalidField(Reason::kLayoutMismatch, field, absl::StrCat(c0),
                      absl::StrCat(**seen, ", the request's one c0"));
}

absl::Status CheckC0(const ConvOperation& operation) {
  const DataType dtype = OperandDtype(operation);
  std::optional<int64_t> seen;
  for (Operand operand : kAllOperands) {
    const auto& tensor = operation.operand(operand);
    if (!tensor || IsBias(operand) || IsRowMajor(tensor->layout)) continue;
    RETURN_IF_ERROR(
        CheckOneC0(tensor->c0, dtype, OperandField(operand, ".c0"), &seen));
  }
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const TensorDescriptor& tensor = operation.results[i].descriptor;
    if (IsBias(operation.results[i].which) || IsRowMajor(tensor.layout)) {
      continue;
    }
    RETURN_IF_ERROR(CheckOneC0(tensor.c0, dtype,
                               absl::StrCat("results[", i, "].c0"), &seen));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view NameOf(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}

absl::string_view NameOf(Operand operand) {
  switch (operand) {
    case Operand::kInput:
      return "input";
    case Operand::kWeight:
      return "weight";
    case Operand::kBias:
      return "bias";
    case Operand::kResidual:
      return "residual";
    case Operand::kGradOutput:
      return "grad_output";
    case Operand::kOutput:
      return "output";
  }
  return "unknown";
}

absl::string_view NameOf(Result result) {
  switch (result) {
    case Result::kOutput:
      return "output";
    case Result::kGradInput:
      return "grad_input";
    case Result::kGradWeight:
      return "grad_weight";
    case Result::kGradBias:
      return "grad_bias";
    case Result::kGradResidual:
      return "grad_residual";
  }
  return "unknown";
}

const ResultRequest* ConvOperation::result(Result which) const {
  for (const ResultRequest& request : results) {
    if (request.which == which) return &request;
  }
  return nullptr;
}

DataType OperandDtype(const ConvOperation& operation) {
  for (Operand operand : kPrimary) {
    if (operation.operand(operand)) return operation.operand(operand)->dtype;
  }
  return DataType::kF32;
}

Dims DimsOf(const ConvProblem& problem, Operand operand) {
  switch (operand) {
    case Operand::kInput:
      return InputDims(problem);
    case Operand::kWeight:
      return WeightDims(problem);
    case Operand::kBias:
      return problem.bias ? *problem.bias : Dims();
    case Operand::kResidual:
    case Operand::kGradOutput:
    case Operand::kOutput:
      return OutputDims(problem);
  }
  return {};
}

Dims DimsOf(const ConvProblem& problem, Result result) {
  switch (result) {
    case Result::kGradInput:
      return InputDims(problem);
    case Result::kGradWeight:
      return WeightDims(problem);
    case Result::kGradBias:
      return problem.bias.value_or(PerChannelBiasDims(problem));
    case Result::kOutput:
    case Result::kGradResidual:
      return OutputDims(problem);
  }
  return {};
}

bool IsNeeded(const ConvOperation& operation, Operand operand) {
  const bool forward = operation.direction == Direction::kForward;
  switch (operand) {
    case Operand::kInput:
      return forward || operation.result(Result::kGradWeight) != nullptr;
    case Operand::kWeight:
      return forward || operation.result(Result::kGradInput) != nullptr;
    case Operand::kBias:
      return forward && operation.problem.bias.has_value();
    case Operand::kResidual:
      return forward && operation.problem.residual;
    case Operand::kGradOutput:
      return !forward;
    case Operand::kOutput:
      return !forward && operation.problem.relu;
  }
  return false;
}

absl::Status Validate(const ConvOperation& operation) {
  RETURN_IF_ERROR(Validate(operation.problem));
  RETURN_IF_ERROR(CheckResults(operation));
  RETURN_IF_ERROR(CheckC0(operation));
  RETURN_IF_ERROR(CheckOperands(operation));
  return CheckResultDescriptors(operation);
}

void DropUnneeded(ConvOperation* operation) {
  for (Operand operand : kAllOperands) {
    if (!IsNeeded(*operation, operand)) operation->operand(operand).reset();
  }
}

int64_t Flops(const ConvOperation& operation) {
  int64_t passes = 0;
  for (const ResultRequest& request : operation.results) {
    passes += request.which == Result::kOutput ||
              request.which == Result::kGradInput ||
              request.which == Result::kGradWeight;
  }
  return SaturatingMul(2 * passes, MultiplyAdds(operation.problem));
}

std::string ToString(const ConvOperation& operation) {
  std::string text = absl::StrCat(NameOf(operation.direction), " ",
                                  ToString(operation.problem));
  auto append = [&](absl::string_view name, const TensorDescriptor& tensor) {
    absl::StrAppend(&text, " ", name, "=", NameOf(tensor.dtype), ":",
                    NameOf(tensor.layout));
    if (!IsRowMajor(tensor.layout)) absl::StrAppend(&text, "/", tensor.c0);
  };
  for (Operand operand : kAllOperands) {
    if (operation.operand(operand)) {
      append(NameOf(operand), *operation.operand(operand));
    }
  }
  absl::StrAppend(&text, " ->");
  for (const ResultRequest& request : operation.results) {
    append(NameOf(request.which), request.descriptor);
    if (request.scale != 1) {
      absl::StrAppend(&text, "*", ExactText(request.scale));
    }
  }
  return text;
}

}  // namespace convgrad

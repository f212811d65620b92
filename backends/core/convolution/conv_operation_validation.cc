// Validates an operation's descriptors.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

std::string OperandField(Operand operand, absl::string_view part) {
  return absl::StrCat("operands.", NameOf(operand), part);
}

bool IsWeight(Operand operand) { return operand == Operand::kWeight; }
bool IsWeight(Result result) { return result == Result::kGradWeight; }
bool IsBias(Operand operand) { return operand == Operand::kBias; }
bool IsBias(Result result) { return result == Result::kGradBias; }

// Returns whether a bias or its gradient may have these dims. If the problem
// names the shape, the dims must be equal to it, because backends read the
// shape from the problem. A backward problem names the gradient's shape, not
// the operand's.
bool IsBiasOfProblem(const ConvOperation& operation, Operand,
                     const Dims& dims) {
  const ConvProblem& problem = operation.problem;
  return operation.direction == Direction::kForward && problem.bias
             ? dims == *problem.bias
             : IsBiasShape(problem, dims);
}
bool IsBiasOfProblem(const ConvOperation& operation, Result role,
                     const Dims& dims) {
  return dims == DimsOf(operation.problem, role);
}

// Checks dims, layout and size of the operand or result at `field`. Requires:
// CheckC0, because packed sizes are undefined without it.
template <typename Role>
absl::Status CheckDescriptor(const ConvOperation& operation, Role role,
                             const TensorDescriptor& tensor,
                             absl::string_view field) {
  const ConvProblem& problem = operation.problem;
  if (IsBias(role) ? !IsBiasOfProblem(operation, role, tensor.dims)
                   : tensor.dims != DimsOf(problem, role)) {
    const Dims expected =
        IsBias(role) ? problem.bias.value_or(PerChannelBiasDims(problem))
                     : DimsOf(problem, role);
    return ShapeMismatch(absl::StrCat(field, ".dims"), ToString(tensor.dims),
                         ToString(expected));
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
    return ShapeMismatch(absl::StrCat(field, ".groups"), tensor.groups,
                         absl::StrCat(problem.groups, ", the problem's"));
  }
  if (!ByteSize(tensor)) {
    return InvalidField(Reason::kOverflow, absl::StrCat(field, ".dims"),
                        ToString(tensor.dims),
                        "a packed size below 2^63 bytes");
  }
  return absl::OkStatus();
}

absl::Status CheckPrimaryDtypes(const ConvOperation& operation) {
  const DataType expected = operation.dtype();
  std::optional<Operand> first;
  for (Operand operand :
       {Operand::kInput, Operand::kWeight, Operand::kGradOutput}) {
    if (!operation.operand(operand)) continue;
    const DataType found = operation.operand(operand)->dtype;
    if (first ? found != expected : !IsFloating(found)) {
      return InvalidField(Reason::kDtypeMismatch,
                          OperandField(operand, ".dtype"), NameOf(found),
                          first
                              ? absl::StrCat(NameOf(expected),
                                             ", the dtype of ", NameOf(*first))
                              : "f32, bf16 or f16");
    }
    if (!first) first = operand;
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
      return Missing(OperandField(operand, ""), "nothing",
                     "a tensor, which the results asked for need");
    }
    RETURN_IF_ERROR(CheckDescriptor(operation, operand, *tensor,
                                    OperandField(operand, "")));
  }
  RETURN_IF_ERROR(CheckPrimaryDtypes(operation));
  const DataType dtype = operation.dtype();
  for (Operand operand : kAllOperands) {
    if (!operation.operand(operand)) continue;
    RETURN_IF_ERROR(CheckMixedDtype(dtype, operation.operand(operand)->dtype,
                                    OperandField(operand, ".dtype")));
  }
  return absl::OkStatus();
}

absl::Status CheckResults(const ConvOperation& operation) {
  if (operation.results.empty()) {
    return Missing("results", "an empty list", "at least one result");
  }
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    const std::string field = absl::StrCat("results[", i, "]");
    const bool forward = operation.direction == Direction::kForward;
    if ((request.which == Result::kOutput) != forward) {
      return InvalidEnum(absl::StrCat(field, ".which"), NameOf(request.which),
                         forward ? "output" : "a gradient");
    }
    if (operation.result(request.which) != &request) {
      return InvalidField(Reason::kDuplicate, absl::StrCat(field, ".which"),
                          absl::StrCat(NameOf(request.which), " again"),
                          "each result once");
    }
    if (!std::isfinite(request.scale)) {
      return OutOfRange(absl::StrCat(field, ".scale"), request.scale,
                        "a finite number");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckResultDescriptors(const ConvOperation& operation) {
  const DataType dtype = operation.dtype();
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

absl::Status CheckC0(const ConvOperation& operation) {
  const bool is_f32 = operation.dtype() == DataType::kF32;
  std::optional<int64_t> seen;
  const auto check = [&](auto role, const TensorDescriptor& tensor,
                         const std::string& field) {
    if (IsBias(role) || IsRowMajor(tensor.layout)) return absl::OkStatus();
    if (tensor.c0 != 16 && !(tensor.c0 == 8 && is_f32)) {
      return OutOfRange(field, tensor.c0, is_f32 ? "8 or 16" : "16");
    }
    if (!seen) seen = tensor.c0;
    if (*seen == tensor.c0) return absl::OkStatus();
    return InvalidField(Reason::kLayoutMismatch, field, tensor.c0,
                        absl::StrCat(*seen, ", the request's one c0"));
  };
  for (Operand operand : kAllOperands) {
    const auto& tensor = operation.operand(operand);
    if (!tensor) continue;
    RETURN_IF_ERROR(check(operand, *tensor, OperandField(operand, ".c0")));
  }
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    RETURN_IF_ERROR(check(request.which, request.descriptor,
                          absl::StrCat("results[", i, "].c0")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const ConvOperation& operation) {
  RETURN_IF_ERROR(Validate(operation.problem));
  RETURN_IF_ERROR(CheckResults(operation));
  RETURN_IF_ERROR(CheckC0(operation));
  RETURN_IF_ERROR(CheckOperands(operation));
  return CheckResultDescriptors(operation);
}

}  // namespace convgrad

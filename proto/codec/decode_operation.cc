// Implements DecodeOperation: enums, then shapes, then bytes, each over the
// whole request.
#include "proto/codec/decode_operation.h"

#include <utility>

#include "backends/core/field_errors.h"
#include "google/protobuf/descriptor.h"
#include "proto/codec/codec_enums.h"

namespace convgrad {
namespace {

using google::protobuf::FieldDescriptor;

// Returns the field of Operands with the operand's name.
const FieldDescriptor* FieldOf(Operand operand) {
  return v1::Operands::descriptor()->FindFieldByName(
      std::string(NameOf(operand)));
}

// Returns the descriptor in `tensor`. Its dims aren't compared with the problem
// yet, and a c0 of 0 stays 0.
absl::StatusOr<TensorDescriptor> StatedDescriptor(const v1::Tensor& tensor,
                                                  Operand operand,
                                                  int64_t groups) {
  const std::string path = OperandPath(operand);
  TensorDescriptor stated;
  stated.dtype = *DecodeDataType(tensor.dtype());
  ASSIGN_OR_RETURN(stated.dims, DecodeDims(tensor.dims(), path + ".dims"));
  RETURN_IF_ERROR(CheckC0Known(tensor.c0(), path + ".c0"));
  if (operand == Operand::kBias) return stated;  // row-major in any case
  stated.layout = *DecodeLayout(tensor.layout());
  if (!IsRowMajor(stated.layout)) stated.c0 = tensor.c0();
  if (stated.layout == Layout::kFractalZ3D) stated.groups = groups;
  return stated;
}

absl::Status SetOperands(const v1::Operands& message,
                         ConvOperation* operation) {
  for (Operand operand : kAllOperands) {
    const v1::Tensor* tensor = FindTensor(message, operand);
    if (tensor == nullptr) continue;
    ASSIGN_OR_RETURN(
        operation->operand(operand),
        StatedDescriptor(*tensor, operand, operation->problem.groups));
  }
  return absl::OkStatus();
}

absl::Status CheckBias(const ConvProblem& problem, const Dims& bias,
                       const std::string& path) {
  if (IsBiasShape(problem, bias)) return absl::OkStatus();
  return ShapeMismatch(
      path, ToString(absl::MakeConstSpan(bias)),
      absl::StrCat("[], [1], [", problem.out_channels,
                   "], or each axis 1 or that of the output, ",
                   ToString(absl::MakeConstSpan(OutputDims(problem)))));
}

// Sets problem.bias and problem.residual from the operands of a forward
// operation or the results of a backward operation.
absl::Status SetFusedShapes(const v1::ConvOperation& message,
                            ConvOperation* operation) {
  ConvProblem& problem = operation->problem;
  const bool forward = operation->direction == Direction::kForward;
  if (const auto& bias = operation->operand(Operand::kBias)) {
    RETURN_IF_ERROR(
        CheckBias(problem, bias->dims, OperandPath(Operand::kBias) + ".dims"));
    if (forward) problem.bias = bias->dims;
  }
  problem.residual =
      forward && operation->operand(Operand::kResidual).has_value();
  for (int i = 0; i < message.results_size(); ++i) {
    const v1::ResultRequest& request = message.results(i);
    const std::string path = ResultPath(i) + ".bias_dims";
    if (request.which() != v1::RESULT_GRAD_BIAS) {
      if (!request.has_bias_dims()) continue;
      return OutOfRange(path, "dims",
                        "nothing, unless the result is grad_bias");
    }
    Dims dims = PerChannelBiasDims(problem);
    if (request.has_bias_dims()) {
      ASSIGN_OR_RETURN(dims, DecodeDims(request.bias_dims().dim(), path));
      RETURN_IF_ERROR(CheckBias(problem, dims, path));
    }
    if (!forward) problem.bias = std::move(dims);
  }
  return absl::OkStatus();
}

DataType DefaultDtype(const ConvOperation& operation, Result which,
                      const v1::ResultRequest& request) {
  if (which == Result::kGradWeight || which == Result::kGradBias ||
      (request.has_kept() && request.store() == v1::ResultRequest::STORE_ADD)) {
    return DataType::kF32;
  }
  return operation.dtype();
}

Layout DefaultLayout(const ConvOperation& operation, Result which) {
  if (which == Result::kGradWeight) {
    const auto& weight = operation.operand(Operand::kWeight);
    return weight ? weight->layout : Layout::kOIX;
  }
  const auto& activation = operation.operand(
      operation.direction == Direction::kForward ? Operand::kInput
                                                 : Operand::kGradOutput);
  return activation ? activation->layout : Layout::kNCX;
}

TensorDescriptor WantedDescriptor(const v1::ResultRequest& request,
                                  const ConvOperation& operation,
                                  int64_t default_c0) {
  const Result which = *DecodeResult(request.which());
  TensorDescriptor wanted;
  wanted.dtype = DecodeDataType(request.dtype())
                     .value_or(DefaultDtype(operation, which, request));
  wanted.dims = DimsOf(operation.problem, which);
  if (which == Result::kGradBias) return wanted;
  wanted.layout =
      DecodeLayout(request.layout()).value_or(DefaultLayout(operation, which));
  if (!IsRowMajor(wanted.layout)) {
    wanted.c0 = request.c0() == 0 ? default_c0 : request.c0();
  }
  if (wanted.layout == Layout::kFractalZ3D) {
    wanted.groups = operation.problem.groups;
  }
  return wanted;
}

// Sets the c0 of every blocked operand. Returns the c0 of results that name
// none: an operand's, else the default.
int64_t SettleC0(ConvOperation* operation) {
  const int64_t default_c0 = DefaultC0(operation->dtype());
  int64_t named = 0;
  for (auto& tensor : operation->operands) {
    if (!tensor || IsRowMajor(tensor->layout)) continue;
    if (named == 0) named = tensor->c0;
    if (tensor->c0 == 0) tensor->c0 = default_c0;
  }
  return named == 0 ? default_c0 : named;
}

absl::Status SetResults(const v1::ConvOperation& message,
                        ConvOperation* operation) {
  const int64_t default_c0 = SettleC0(operation);
  for (int i = 0; i < message.results_size(); ++i) {
    const v1::ResultRequest& request = message.results(i);
    RETURN_IF_ERROR(CheckC0Known(request.c0(), ResultPath(i) + ".c0"));
    operation->results.push_back(
        {*DecodeResult(request.which()),
         WantedDescriptor(request, *operation, default_c0),
         request.has_scale() ? request.scale() : 1.0f});
  }
  return absl::OkStatus();
}

}  // namespace

const v1::Tensor* FindTensor(const v1::Operands& operands, Operand operand) {
  const FieldDescriptor* field = FieldOf(operand);
  const auto& reflection = *operands.GetReflection();
  if (!reflection.HasField(operands, field)) return nullptr;
  return static_cast<const v1::Tensor*>(
      &reflection.GetMessage(operands, field));
}

v1::Tensor* MutableTensor(v1::Operands* operands, Operand operand) {
  return static_cast<v1::Tensor*>(
      operands->GetReflection()->MutableMessage(operands, FieldOf(operand)));
}

std::string OperandPath(Operand operand) {
  return absl::StrCat("operation.operands.", NameOf(operand));
}

std::string ResultPath(int index) {
  return absl::StrCat("operation.results[", index, "]");
}

absl::StatusOr<DecodedOperation> DecodeOperation(
    const v1::ConvOperation& message, Direction direction,
    absl::Span<const int64_t> payload_bytes, Carrier carrier) {
  if (!message.has_problem()) {
    return Missing("operation.problem", "nothing", "a ConvProblem");
  }
  RETURN_IF_ERROR(CheckEnums(message));
  DecodedOperation decoded;
  ConvOperation& operation = decoded.operation;
  operation.direction = direction;
  ASSIGN_OR_RETURN(operation.problem, DecodeProblem(message.problem()));
  RETURN_IF_ERROR(SetOperands(message.operands(), &operation));
  RETURN_IF_ERROR(SetFusedShapes(message, &operation));
  RETURN_IF_ERROR(SetResults(message, &operation));
  RETURN_IF_ERROR(WithFieldPrefix(Validate(operation), "operation."));
  RETURN_IF_ERROR(DecodeBytes(message, carrier, payload_bytes, &decoded));
  return decoded;
}

}  // namespace convgrad

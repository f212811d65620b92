#include "client/cpp/command_line/files/operands.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/field_errors.h"
#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "client/cpp/command_line/files/tensor_files.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

// Returns the settings' gradients, or the default if they name none.
std::vector<Result> GradientsFor(const ConvProblem& problem,
                                 const Settings& settings) {
  if (!settings.gradients.empty()) return settings.gradients;
  std::vector<Result> gradients = {Result::kGradInput, Result::kGradWeight};
  if (problem.bias) gradients.push_back(Result::kGradBias);
  return gradients;
}

DataType DtypeFor(Result which, const Settings& settings) {
  if (const auto& dtype = settings.result_dtypes[static_cast<size_t>(which)]) {
    return *dtype;
  }
  const bool of_parameter =
      which == Result::kGradWeight || which == Result::kGradBias;
  return of_parameter ? DataType::kF32 : settings.operand_dtype();
}

// Gives the tensor this layout. `problem` is the one that it belongs to.
void SetLayout(Layout layout, const ConvProblem& problem,
               const Settings& settings, TensorDescriptor* tensor) {
  tensor->layout = layout;
  tensor->c0 = IsRowMajor(layout) ? 0 : DefaultC0(settings.operand_dtype());
  tensor->groups = layout == Layout::kFractalZ3D ? problem.groups : 1;
}

ResultRequest RequestFor(Result which, const ConvProblem& problem,
                         const Settings& settings) {
  const auto i = static_cast<size_t>(which);
  ResultRequest request{
      which,
      {DtypeFor(which, settings), Layout::kNCX, DimsOf(problem, which)},
      settings.scales[i].value_or(1)};
  if (which == Result::kGradBias) return request;
  const Layout own =
      which == Result::kGradWeight ? settings.weight_layout() : settings.layout;
  SetLayout(settings.result_layouts[i].value_or(own), problem, settings,
            &request.descriptor);
  return request;
}

// Refuses tensors too large for a message before it allocates them, because
// they are most likely a typing error. A stream could carry them.
absl::Status CheckSizes(const ConvOperation& operation) {
  for (Operand operand : kAllOperands) {
    const auto& tensor = operation.operand(operand);
    if (!tensor || *ByteSize(*tensor) <= kMaxMessageBytes) continue;
    return InvalidField(Reason::kLimitExceeded, NameOf(operand),
                        absl::StrCat(*ByteSize(*tensor), " bytes"),
                        absl::StrCat("at most ", kMaxMessageBytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<double> LocalTensor::Values() const {
  return LoadLogical(descriptor, data.data());
}

absl::StatusOr<ConvOperation> MakeOperation(Direction direction,
                                            const ConvProblem& problem,
                                            const Settings& settings) {
  ConvProblem own = problem;
  std::vector<Result> results = {Result::kOutput};
  if (direction == Direction::kBackward) {
    results = GradientsFor(own, settings);
    own.residual = false;
    const bool with_bias = absl::c_linear_search(results, Result::kGradBias);
    if (!with_bias) own.bias.reset();
    if (with_bias && !own.bias) own.bias = PerChannelBiasDims(own);
  }
  ConvOperation operation =
      WholeOperation(own, direction, settings.operand_dtype(), settings.layout);
  for (Operand operand : kAllOperands) {
    auto& tensor = operation.operand(operand);
    if (!tensor || operand == Operand::kBias) continue;
    SetLayout(operand == Operand::kWeight ? settings.weight_layout()
                                          : settings.layout,
              own, settings, &*tensor);
  }
  operation.results.clear();
  for (Result which : results) {
    operation.results.push_back(RequestFor(which, own, settings));
  }
  RETURN_IF_ERROR(Validate(operation));
  RETURN_IF_ERROR(CheckSizes(operation));
  return operation;
}

absl::StatusOr<LocalTensor> TensorOf(const TensorDescriptor& descriptor,
                                     absl::Span<const double> values) {
  LocalTensor tensor{descriptor, {}};
  ASSIGN_OR_RETURN(tensor.data, AlignedBuffer::Allocate(*ByteSize(descriptor)));
  StoreLogical(descriptor, values, tensor.data.data());
  return tensor;
}

absl::StatusOr<LocalTensor> RandomTensor(const TensorDescriptor& descriptor,
                                         const Settings& settings, int salt) {
  std::seed_seq seeds{static_cast<uint32_t>(settings.seed),
                      static_cast<uint32_t>(settings.seed >> 32),
                      static_cast<uint32_t>(salt)};
  std::mt19937_64 random(seeds);
  std::normal_distribution<double> normal;
  std::vector<double> values(ElementCount(descriptor));
  for (double& value : values) {
    if (settings.integers) {
      const int digit = static_cast<int>(random() % 8);  // -4..-1, 1..4
      value = digit < 4 ? digit - 4 : digit - 3;
    } else {
      value = normal(random);
    }
  }
  return TensorOf(descriptor, values);
}

absl::StatusOr<LocalTensors> MakeOperands(const ConvOperation& operation,
                                          const Settings& settings) {
  RETURN_IF_ERROR(CheckOperandNames(settings));
  LocalTensors tensors;
  for (Operand operand : kAllOperands) {
    const auto i = PositionOf(operand);
    const auto& descriptor = operation.operand(operand);
    if (!descriptor) {
      if (settings.files[i].empty()) continue;
      return OutOfRange(absl::StrCat("--", NameOf(operand)), settings.files[i],
                        absl::StrCat("nothing, ", NameOf(operation.direction),
                                     " of this problem has none"));
    }
    ASSIGN_OR_RETURN(const auto values,
                     ReadOperand(operand, descriptor->dims, settings));
    if (values) {
      ASSIGN_OR_RETURN(tensors[i], TensorOf(*descriptor, *values));
    } else {
      ASSIGN_OR_RETURN(tensors[i], RandomTensor(*descriptor, settings,
                                                static_cast<int>(operand)));
    }
  }
  return tensors;
}

OperationCall CallFor(const ConvOperation& operation,
                      const LocalTensors& tensors, const Settings& settings) {
  OperationCall call;
  call.operation = operation;
  DropUnneeded(&call.operation);
  for (size_t i = 0; i < tensors.size(); ++i) {
    // A check's own grad_output isn't one of `tensors`.
    if (!call.operation.operands[i] || !tensors[i]) continue;
    call.operands[i] = tensors[i]->data.bytes();
  }
  call.backend = settings.backend == "auto" ? "" : settings.backend;
  call.traceparent = settings.traceparent;
  call.priority = settings.priority;
  call.self_check = settings.self_check;
  call.count_nonfinite = settings.count_nonfinite;
  call.deadline = absl::Now() + settings.timeout;
  return call;
}

absl::StatusOr<PlacedCall> Place(OperationCall call, const Settings& settings) {
  if (settings.region.empty()) return PlacedCall{nullptr, std::move(call)};
  return PlaceInRegion(std::move(call), settings.region);
}

std::vector<double> ValuesOf(const OperationResult& result) {
  return LoadLogical(result.descriptor, result.bytes.data());
}

absl::StatusOr<OperationReply> Send(const OperationCall& call,
                                    const Settings& settings, Client* client) {
  if (settings.slice_items == 0) return client->Run(call);
  return client->RunStreamed(call, std::max<int64_t>(settings.slice_items, 0));
}

}  // namespace convgrad

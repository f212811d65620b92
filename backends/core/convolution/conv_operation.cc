#include "backends/core/convolution/conv_operation.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

// Returns the shortest text that identifies `value`.
std::string ExactText(float value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

// Indexed by Operand and by Result.
constexpr absl::string_view kOperandNames[kOperandCount] = {
    "input", "weight", "bias", "residual", "grad_output", "output"};
constexpr absl::string_view kResultNames[kResultCount] = {
    "output", "grad_input", "grad_weight", "grad_bias", "grad_residual"};

// Operands whose dtype must be the operation's dtype.
constexpr std::array<Operand, 3> kPrimary = {Operand::kInput, Operand::kWeight,
                                             Operand::kGradOutput};

// Returns the slowdown by empty vector lanes, which groups narrower than a
// vector cause. It is at most 8 because depthwise kernels are optimized for
// narrow groups.
double LaneWaste(const ConvProblem& problem) {
  if (problem.groups == 1) return 1;
  const int64_t narrower = std::min(problem.in_channels, problem.out_channels);
  const int64_t lanes = narrower / problem.groups;
  return std::clamp(16.0 / static_cast<double>(lanes), 1.0, 8.0);
}

}  // namespace

absl::string_view NameOf(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}

absl::string_view NameOf(Operand operand) {
  return kOperandNames[static_cast<size_t>(operand)];
}

absl::string_view NameOf(Result result) {
  return kResultNames[static_cast<size_t>(result)];
}

const ResultRequest* ConvOperation::result(Result which) const {
  for (const ResultRequest& request : results) {
    if (request.which == which) return &request;
  }
  return nullptr;
}

const ConvOperation* AsConvolution(const Operation& operation) {
  return dynamic_cast<const ConvOperation*>(&operation);
}

std::string ConvOperation::text() const { return ToString(*this); }

DataType ConvOperation::dtype() const {
  for (Operand which : kPrimary) {
    if (operand(which)) return operand(which)->dtype;
  }
  return DataType::kF32;
}

Dims DimsOf(const ConvProblem& problem, Operand operand) {
  if (operand == Operand::kInput) return InputDims(problem);
  if (operand == Operand::kWeight) return WeightDims(problem);
  if (operand == Operand::kBias) return problem.bias ? *problem.bias : Dims();
  return OutputDims(problem);
}

Dims DimsOf(const ConvProblem& problem, Result result) {
  if (result == Result::kGradInput) return InputDims(problem);
  if (result == Result::kGradWeight) return WeightDims(problem);
  if (result == Result::kGradBias) {
    return problem.bias.value_or(PerChannelBiasDims(problem));
  }
  return OutputDims(problem);
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

void DropUnneeded(ConvOperation* operation) {
  for (Operand operand : kAllOperands) {
    if (!IsNeeded(*operation, operand)) operation->operand(operand).reset();
  }
}

ConvOperation WholeOperation(const ConvProblem& problem, Direction direction,
                             DataType dtype, Layout layout) {
  ConvOperation operation;
  operation.direction = direction;
  operation.problem = problem;
  const bool forward = direction == Direction::kForward;
  const auto activation = [&](auto which) {
    return TensorDescriptor{dtype, layout, DimsOf(problem, which)};
  };
  for (Operand which : kAllOperands) {
    operation.operand(which) = activation(which);
  }
  operation.operand(Operand::kWeight)->layout = Layout::kOIX;
  operation.operand(Operand::kBias)->layout = Layout::kNCX;
  for (Result which : kAllResults) {
    if ((which == Result::kOutput) != forward ||
        (which == Result::kGradBias && !problem.bias) ||
        (which == Result::kGradResidual && !problem.residual)) {
      continue;
    }
    ResultRequest request{which, activation(which)};
    if (which == Result::kGradWeight) {
      request.descriptor = {DataType::kF32, Layout::kOIX, WeightDims(problem)};
    } else if (which == Result::kGradBias) {
      request.descriptor = {DataType::kF32, Layout::kNCX, *problem.bias};
    }
    operation.results.push_back(std::move(request));
  }
  DropUnneeded(&operation);
  return operation;
}

int64_t ConvOperation::flops() const {
  int64_t passes = 0;
  for (const ResultRequest& request : results) {
    passes += request.which == Result::kOutput ||
              request.which == Result::kGradInput ||
              request.which == Result::kGradWeight;
  }
  return SaturatingMul(2 * passes, MultiplyAdds(problem));
}

double ConvOperation::nominal_macs() const {
  const double macs = static_cast<double>(flops()) / 2;
  return macs * LaneWaste(problem);
}

bool IsSmall(const ConvOperation& operation) {
  // Measured on two cores: 8>8 3x3 on 8x8 is 2^15.2 multiply-adds, and two
  // threads take as long as one for 16>16, 2^17.2.
  constexpr int64_t kSmallMacs = int64_t{1} << 18;
  constexpr int64_t kSmallBytes = int64_t{256} << 10;
  int64_t bytes = 0;
  for (const auto& operand : operation.operands) {
    if (operand) bytes = SaturatingAdd(bytes, *ByteSize(*operand));
  }
  for (const ResultRequest& request : operation.results) {
    bytes = SaturatingAdd(bytes, *ByteSize(request.descriptor));
  }
  return bytes <= kSmallBytes && MultiplyAdds(operation.problem) <= kSmallMacs;
}

std::string ToString(const ConvOperation& operation) {
  std::string text = absl::StrCat(NameOf(operation.direction), " ",
                                  ToString(operation.problem));
  for (Operand operand : kAllOperands) {
    const auto& tensor = operation.operand(operand);
    if (!tensor) continue;
    absl::StrAppend(&text, " ", NameOf(operand), "=", StorageText(*tensor));
  }
  absl::StrAppend(&text, " ->");
  for (const ResultRequest& request : operation.results) {
    absl::StrAppend(&text, " ", NameOf(request.which), "=",
                    StorageText(request.descriptor));
    if (request.scale != 1) {
      absl::StrAppend(&text, "*", ExactText(request.scale));
    }
  }
  return text;
}

}  // namespace convgrad

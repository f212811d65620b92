#include "client/cpp/command_line/checks/result_check.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

std::vector<double> ValuesOf(const FinishedCall& call, Operand operand) {
  return call.tensors[PositionOf(operand)]->Values();
}

const OperationResult* Find(const OperationReply& reply, Result which) {
  for (const OperationResult& result : reply.results) {
    if (result.which == which) return &result;
  }
  return nullptr;
}

// Returns the result's values divided by the result's scale.
std::vector<double> UnscaledValuesOf(const FinishedCall& call,
                                     const OperationResult& result) {
  std::vector<double> values = ValuesOf(result);
  const double scale = call.operation.result(result.which)->scale;
  for (double& value : values) value /= scale;
  return values;
}

// Returns the problem without bias, residual and ReLU.
ConvProblem Plain(ConvProblem problem) {
  problem.bias.reset();
  problem.residual = false;
  problem.relu = false;
  return problem;
}

// Returns the settings of a call that only serves a check.
Settings CheckSettings(Settings settings, std::vector<Result> gradients) {
  settings.result_dtypes.fill(DataType::kF32);
  settings.result_layouts.fill(std::nullopt);
  settings.scales.fill(std::nullopt);
  settings.gradients = std::move(gradients);
  // Requested for the checked operation only, not for the check itself.
  settings.self_check = settings.count_nonfinite = false;
  return settings;
}

double LargestRoundoff(const OperationReply& reply) {
  double largest = UnitRoundoff(DataType::kF32);
  for (const OperationResult& result : reply.results) {
    largest = std::max(largest, UnitRoundoff(result.descriptor.dtype));
  }
  return largest;
}

// Returns the values with which both directions begin.
AdjointValues ValuesOf(const FinishedCall& call) {
  return {.input = ValuesOf(call, Operand::kInput),
          .weight = ValuesOf(call, Operand::kWeight),
          .unit_roundoff = LargestRoundoff(call.reply)};
}

// Returns true if no tensor came from a file.
bool AllRandom(const Settings& settings) {
  return settings.operands.empty() &&
         std::all_of(settings.files.begin(), settings.files.end(),
                     [](const std::string& file) { return file.empty(); });
}

BiasSumCheck CheckGradBias(const FinishedCall& call,
                           const OperationResult& grad_bias,
                           const std::vector<double>& grad_output) {
  BiasSumCheck check;
  double scale = 0;
  for (double value : UnscaledValuesOf(call, grad_bias)) check.found += value;
  for (double value : grad_output) {
    check.expected += value;
    scale += std::abs(value);
  }
  constexpr double kSlack = 1e-6;
  check.bound = (kSlack + UnitRoundoff(grad_bias.descriptor.dtype)) * scale;
  return check;
}

absl::StatusOr<ResultCheck> CheckBackward(const FinishedCall& call,
                                          const Settings& own, Client* client) {
  AdjointValues values = ValuesOf(call);
  values.grad_output = ValuesOf(call, Operand::kGradOutput);
  if (call.operation.problem.relu) {
    values.grad_output =
        MaskByOutput(values.grad_output, ValuesOf(call, Operand::kOutput));
  }
  ResultCheck check;
  if (const OperationResult* bias = Find(call.reply, Result::kGradBias)) {
    check.grad_bias = CheckGradBias(call, *bias, values.grad_output);
  }
  if (const OperationResult* result = Find(call.reply, Result::kGradInput)) {
    values.grad_input = UnscaledValuesOf(call, *result);
  }
  if (const OperationResult* result = Find(call.reply, Result::kGradWeight)) {
    values.grad_weight = UnscaledValuesOf(call, *result);
  }
  if (!values.grad_input && !values.grad_weight) return check;

  const ConvProblem plain = Plain(call.operation.problem);
  const Settings settings = CheckSettings(own, {});
  ASSIGN_OR_RETURN(const ConvOperation forward,
                   MakeOperation(Direction::kForward, plain, settings));
  ASSIGN_OR_RETURN(const PlacedCall placed,
                   Place(CallFor(forward, call.tensors, settings), settings));
  ASSIGN_OR_RETURN(const OperationReply checking, client->Run(placed.call));
  values.output = ValuesOf(checking.results[0]);
  check.adjoint = CheckAdjoint(plain, values);
  return check;
}

// Returns what bias and residual added to each output before the ReLU.
std::vector<double> AddedValues(const FinishedCall& call) {
  const ConvProblem& problem = call.operation.problem;
  const Dims dims = OutputDims(problem);
  std::vector<double> added;
  if (problem.residual) added = ValuesOf(call, Operand::kResidual);
  added.resize(ElementCount({DataType::kF32, Layout::kNCX, dims, 0, 1}), 0);
  if (!problem.bias) return added;
  const std::vector<double> bias = ValuesOf(call, Operand::kBias);
  const Dims strides =
      BroadcastStrides(BroadcastBiasDims(problem, *problem.bias), dims);
  for (size_t i = 0; i < added.size(); ++i) {
    int64_t flat = static_cast<int64_t>(i), at = 0;
    for (size_t axis = dims.size(); axis-- > 0; flat /= dims[axis]) {
      at += flat % dims[axis] * strides[axis];
    }
    added[i] += bias[at];
  }
  return added;
}

// Checks the output with the gradients of a random grad_output.
absl::StatusOr<ResultCheck> CheckForward(const FinishedCall& call,
                                         const Settings& own, Client* client) {
  const ConvProblem plain = Plain(call.operation.problem);
  const Settings settings =
      CheckSettings(own, {Result::kGradInput, Result::kGradWeight});
  ASSIGN_OR_RETURN(const ConvOperation backward,
                   MakeOperation(Direction::kBackward, plain, settings));
  AdjointValues values = ValuesOf(call);
  values.independent = AllRandom(own);
  values.output = UnscaledValuesOf(call, call.reply.results[0]);
  std::vector<double>& output = *values.output;
  const int salt = static_cast<int>(Operand::kGradOutput);
  ASSIGN_OR_RETURN(
      LocalTensor drawn,
      RandomTensor(*backward.operand(Operand::kGradOutput), settings, salt));
  values.grad_output = drawn.Values();
  if (call.operation.problem.relu) {
    values.grad_output = MaskByOutput(values.grad_output, output);
    StoreLogical(drawn.descriptor, values.grad_output, drawn.data.data());
  }
  const std::vector<double> added = AddedValues(call);
  for (size_t i = 0; i < output.size(); ++i) {
    output[i] -= added[i];
    values.added_scale += std::abs(values.grad_output[i] * added[i]);
  }

  OperationCall backward_call = CallFor(backward, call.tensors, settings);
  backward_call.operands[PositionOf(Operand::kGradOutput)] = drawn.data.bytes();
  ASSIGN_OR_RETURN(const PlacedCall placed,
                   Place(std::move(backward_call), settings));
  ASSIGN_OR_RETURN(const OperationReply checking, client->Run(placed.call));
  values.grad_input = ValuesOf(checking.results[0]);
  values.grad_weight = ValuesOf(checking.results[1]);
  return ResultCheck{.adjoint = CheckAdjoint(plain, values)};
}

}  // namespace

bool BiasSumCheck::ok() const { return std::abs(found - expected) <= bound; }

bool ResultCheck::ok() const {
  return (!grad_bias || grad_bias->ok()) && (!adjoint || adjoint->ok());
}

bool PassedSelfCheck(const OperationReply& reply) {
  return !reply.report.has_self_check() || reply.report.self_check().passed();
}

absl::Status Verdict(bool ok) {
  if (ok) return absl::OkStatus();
  return absl::DataLossError("a check of the results failed");
}

absl::StatusOr<ResultCheck> CheckResults(const FinishedCall& call,
                                         const Settings& settings,
                                         Client* client) {
  return call.operation.direction == Direction::kForward
             ? CheckForward(call, settings, client)
             : CheckBackward(call, settings, client);
}

}  // namespace convgrad

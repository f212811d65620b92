// backward and forward: one call, and the checks by the calls that its adjoints
// take.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "client/cpp/adjoint_check.h"
#include "client/cpp/command_line/commands.h"
#include "client/cpp/command_line/operands.h"
#include "client/cpp/command_line/output.h"
#include "client/cpp/npy.h"

namespace convgrad {
namespace {

// One command's state.
struct Run {
  ConvOperation operation;
  LocalTensors tensors;
  const Settings& settings;
  Client* client;

  const LocalTensor& tensor(Operand operand) const {
    return *tensors[static_cast<size_t>(operand)];
  }
};

const OperationResult* Find(const OperationReply& reply, Result which) {
  for (const OperationResult& result : reply.results) {
    if (result.which == which) return &result;
  }
  return nullptr;
}

std::vector<double> ValuesOf(const OperationResult& result) {
  return LoadLogical(result.descriptor, result.bytes.data());
}

// Returns the result's values as they would be with a scale of 1.
std::vector<double> UnscaledValuesOf(const Run& run,
                                     const OperationResult& result) {
  std::vector<double> values = ValuesOf(result);
  const double scale = run.operation.result(result.which)->scale;
  for (double& value : values) value /= scale;
  return values;
}

absl::Status WriteResults(const OperationReply& reply,
                          const std::string& prefix) {
  for (const OperationResult& result : reply.results) {
    NpyArray array;
    array.dtype = result.descriptor.dtype;
    array.shape.assign(result.descriptor.dims.begin(),
                       result.descriptor.dims.end());
    // The same elements, row-major.
    TensorDescriptor plain = result.descriptor;
    plain.layout = Layout::kNCX;
    array.data.resize(*ByteSize(plain));
    StoreLogical(plain, ValuesOf(result), array.data.data());
    const std::string path = absl::StrCat(prefix, NameOf(result.which), ".npy");
    RETURN_IF_ERROR(WriteNpy(path, array));
    std::cout << "  wrote        " << path << "\n";
  }
  return absl::OkStatus();
}

// The convolution alone: no bias, residual or ReLU.
ConvProblem Plain(ConvProblem problem) {
  problem.bias.reset();
  problem.residual = false;
  problem.relu = false;
  return problem;
}

// Returns the settings for a call that only serves a check.
Settings CheckSettings(Settings settings, std::vector<Result> gradients) {
  settings.result_dtypes.fill(DataType::kF32);
  settings.result_layouts.fill(std::nullopt);
  settings.scales.fill(std::nullopt);
  settings.gradients = std::move(gradients);
  // Asked for of the operation, not of the one that checks it.
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

// True if no tensor came from a file.
bool AllRandom(const Run& run) {
  const auto& files = run.settings.files;
  return std::all_of(files.begin(), files.end(),
                     [](const std::string& file) { return file.empty(); });
}

absl::Status Verdict(bool ok) {
  if (ok) return absl::OkStatus();
  return absl::DataLossError("a check of the results failed");
}

// A singular or per-channel sum: all of grad_bias adds up to all of g.
bool CheckGradBias(const Run& run, const OperationResult& grad_bias,
                   const std::vector<double>& grad_output) {
  double got = 0, expected = 0, scale = 0;
  for (double value : UnscaledValuesOf(run, grad_bias)) got += value;
  for (double value : grad_output) {
    expected += value;
    scale += std::abs(value);
  }
  constexpr double kSlack = 1e-6;
  const double bound =
      (kSlack + UnitRoundoff(grad_bias.descriptor.dtype)) * scale;
  const bool ok = std::abs(got - expected) <= bound;
  std::cout << absl::StrFormat(
      "  grad_bias    sum %.10g, sum of g %.10g, bound %.3g: %s\n", got,
      expected, bound, ok ? "ok" : "FAILED");
  return ok;
}

absl::Status CheckBackward(const Run& run, const OperationReply& reply) {
  std::vector<double> grad_output = run.tensor(Operand::kGradOutput).Values();
  if (run.operation.problem.relu) {
    grad_output =
        MaskByOutput(grad_output, run.tensor(Operand::kOutput).Values());
  }
  bool ok = true;
  if (const OperationResult* bias = Find(reply, Result::kGradBias)) {
    ok = CheckGradBias(run, *bias, grad_output);
  }
  std::vector<double> input, weight, output, grad_input, grad_weight;
  AdjointValues values{&input,  &weight, &grad_output,           &output,
                       nullptr, nullptr, LargestRoundoff(reply), 0};
  if (const OperationResult* result = Find(reply, Result::kGradInput)) {
    grad_input = UnscaledValuesOf(run, *result);
    values.grad_input = &grad_input;
  }
  if (const OperationResult* result = Find(reply, Result::kGradWeight)) {
    grad_weight = UnscaledValuesOf(run, *result);
    values.grad_weight = &grad_weight;
  }
  if (!values.grad_input && !values.grad_weight) return Verdict(ok);

  const ConvProblem plain = Plain(run.operation.problem);
  const Settings settings = CheckSettings(run.settings, {});
  ASSIGN_OR_RETURN(const ConvOperation forward,
                   MakeOperation(Direction::kForward, plain, settings));
  ASSIGN_OR_RETURN(const PlacedCall placed,
                   Place(CallFor(forward, run.tensors, settings), settings));
  ASSIGN_OR_RETURN(const OperationReply check, run.client->Run(placed.call));
  input = run.tensor(Operand::kInput).Values();
  weight = run.tensor(Operand::kWeight).Values();
  output = ValuesOf(check.results[0]);
  const AdjointCheck adjoint = CheckAdjoint(plain, values);
  PrintAdjoint(adjoint);
  return Verdict(ok && adjoint.ok());
}

// Returns, for each output, what bias and residual added before the ReLU.
std::vector<double> AddedValues(const Run& run) {
  const ConvProblem& problem = run.operation.problem;
  const Dims dims = OutputDims(problem);
  std::vector<double> added;
  if (problem.residual) added = run.tensor(Operand::kResidual).Values();
  added.resize(ElementCount({DataType::kF32, Layout::kNCX, dims, 0, 1}), 0);
  if (!problem.bias) return added;
  const std::vector<double> bias = run.tensor(Operand::kBias).Values();
  const Dims shape = BroadcastBiasDims(problem, *problem.bias);
  for (size_t i = 0; i < added.size(); ++i) {
    int64_t flat = static_cast<int64_t>(i), at = 0, stride = 1;
    for (size_t axis = dims.size(); axis-- > 0; flat /= dims[axis]) {
      if (shape[axis] != 1) at += flat % dims[axis] * stride;
      stride *= shape[axis];
    }
    added[i] += bias[at];
  }
  return added;
}

// Sends a random grad_output through the convolution's adjoints.
absl::Status CheckForward(const Run& run, const OperationReply& reply) {
  const ConvProblem plain = Plain(run.operation.problem);
  const Settings settings =
      CheckSettings(run.settings, {Result::kGradInput, Result::kGradWeight});
  ASSIGN_OR_RETURN(const ConvOperation backward,
                   MakeOperation(Direction::kBackward, plain, settings));
  std::vector<double> output = UnscaledValuesOf(run, reply.results[0]);
  const int salt = static_cast<int>(Operand::kGradOutput);
  ASSIGN_OR_RETURN(
      LocalTensor drawn,
      RandomTensor(*backward.operand(Operand::kGradOutput), settings, salt));
  std::vector<double> grad_output = drawn.Values();
  if (run.operation.problem.relu) {
    grad_output = MaskByOutput(grad_output, output);
    StoreLogical(drawn.descriptor, grad_output, drawn.data.data());
  }
  double added_scale = 0;
  const std::vector<double> added = AddedValues(run);
  for (size_t i = 0; i < output.size(); ++i) {
    output[i] -= added[i];
    added_scale += std::abs(grad_output[i] * added[i]);
  }

  OperationCall call = CallFor(backward, run.tensors, settings);
  call.operands[static_cast<size_t>(Operand::kGradOutput)] = drawn.data.bytes();
  ASSIGN_OR_RETURN(const PlacedCall placed, Place(std::move(call), settings));
  ASSIGN_OR_RETURN(const OperationReply check, run.client->Run(placed.call));
  const std::vector<double> input = run.tensor(Operand::kInput).Values();
  const std::vector<double> weight = run.tensor(Operand::kWeight).Values();
  const std::vector<double> grad_input = ValuesOf(check.results[0]);
  const std::vector<double> grad_weight = ValuesOf(check.results[1]);
  const AdjointCheck adjoint = CheckAdjoint(
      plain, {&input, &weight, &grad_output, &output, &grad_input, &grad_weight,
              LargestRoundoff(reply), AllRandom(run), added_scale});
  PrintAdjoint(adjoint);
  return Verdict(adjoint.ok());
}

}  // namespace

absl::Status RunOnce(Direction direction, const ConvProblem& problem,
                     const Settings& settings, Client* client) {
  ASSIGN_OR_RETURN(ConvOperation operation,
                   MakeOperation(direction, problem, settings));
  ASSIGN_OR_RETURN(LocalTensors tensors, MakeOperands(operation, settings));
  const Run run{std::move(operation), std::move(tensors), settings, client};
  ASSIGN_OR_RETURN(
      const PlacedCall placed,
      Place(CallFor(run.operation, run.tensors, settings), settings));
  ASSIGN_OR_RETURN(const OperationReply reply,
                   Send(placed.call, settings, client));
  PrintReply(placed.call.operation, reply);
  if (!settings.out.empty()) {
    RETURN_IF_ERROR(WriteResults(reply, settings.out));
  }
  if (!settings.check) return absl::OkStatus();
  return direction == Direction::kForward ? CheckForward(run, reply)
                                          : CheckBackward(run, reply);
}

}  // namespace convgrad

#include "client/cpp/command_line/checks/reference_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "backends/core/convolution/error_bound.h"
#include "backends/core/status.h"
#include "client/cpp/command_line/checks/result_check.h"
#include "client/cpp/command_line/files/operands.h"

namespace convgrad {
namespace {

// Limit below which sums are exact: sums of absolute products below 2^24 are
// exact in f32. Operands are at most 4; bias and residual are two more terms.
constexpr double kExactProducts = (1 << 24) / 16.0 - 2;

// Returns settings for every gradient of the problem, in the default dtypes and
// unscaled.
Settings OwnSettings(Settings settings, const ConvProblem& problem) {
  settings.operands.clear();
  settings.files.fill("");
  settings.scales.fill(std::nullopt);
  settings.gradients = {Result::kGradInput, Result::kGradWeight};
  if (problem.bias) settings.gradients.push_back(Result::kGradBias);
  if (problem.residual) settings.gradients.push_back(Result::kGradResidual);
  return settings;
}

// Returns settings for the call on the reference backend.
Settings ReferenceSettings(Settings settings) {
  settings.backend = "reference";
  settings.self_check = settings.count_nonfinite = false;
  return settings;
}

using Values = std::vector<std::vector<double>>;

Values ValuesOf(const OperationReply& reply) {
  Values values;
  for (const OperationResult& result : reply.results) {
    values.push_back(ValuesOf(result));
  }
  return values;
}

// One operation on integers or on real numbers.
struct Experiment {
  ConvOperation operation;
  LocalTensors tensors;
  const Settings& settings;
  Client* client;
};

absl::StatusOr<Values> RunTested(const Experiment& experiment) {
  const Settings& settings = experiment.settings;
  ASSIGN_OR_RETURN(
      const PlacedCall placed,
      Place(CallFor(experiment.operation, experiment.tensors, settings),
            settings));
  ASSIGN_OR_RETURN(const OperationReply reply,
                   Send(placed.call, settings, experiment.client));
  if (!PassedSelfCheck(reply)) {
    return absl::DataLossError(absl::StrCat("the server's self-check of ",
                                            ToString(experiment.operation),
                                            " failed"));
  }
  return ValuesOf(reply);
}

absl::StatusOr<Values> RunReference(const ConvOperation& operation,
                                    const Experiment& experiment) {
  const Settings settings = ReferenceSettings(experiment.settings);
  ASSIGN_OR_RETURN(
      const OperationReply reply,
      experiment.client->Run(CallFor(operation, experiment.tensors, settings)));
  return ValuesOf(reply);
}

int64_t CountDiffering(const std::vector<double>& got,
                       const std::vector<double>& expected) {
  int64_t differing = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = std::isnan(got[i]) && std::isnan(expected[i]);
    if (got[i] != expected[i] && !both_nan) ++differing;
  }
  return differing;
}

// Returns the operation with its results in f32.
ConvOperation WithF32Results(ConvOperation operation) {
  for (ResultRequest& result : operation.results) {
    result.descriptor.dtype = DataType::kF32;
  }
  return operation;
}

// Returns, for each result, the root of the same operation on squares before
// any ReLU. The squares are in f32, except for the output, whose sign is the
// mask.
absl::StatusOr<Values> RootsOfSquares(const Experiment& experiment) {
  Experiment squared{WithF32Results(experiment.operation),
                     {},
                     experiment.settings,
                     experiment.client};
  if (squared.operation.direction == Direction::kForward) {
    squared.operation.problem.relu = false;
  }
  for (Operand operand : kAllOperands) {
    const auto i = PositionOf(operand);
    if (!experiment.tensors[i]) continue;
    std::vector<double> values = experiment.tensors[i]->Values();
    if (operand != Operand::kOutput) {
      for (double& value : values) value *= value;
    }
    squared.operation.operands[i]->dtype = DataType::kF32;
    ASSIGN_OR_RETURN(squared.tensors[i],
                     TensorOf(*squared.operation.operands[i], values));
  }
  ASSIGN_OR_RETURN(Values roots, RunReference(squared.operation, squared));
  for (std::vector<double>& result : roots) {
    for (double& value : result) value = std::sqrt(value);
  }
  return roots;
}

absl::StatusOr<Experiment> MakeExperiment(const ConvOperation& operation,
                                          const Settings& settings,
                                          Client* client) {
  ASSIGN_OR_RETURN(LocalTensors tensors, MakeOperands(operation, settings));
  return Experiment{operation, std::move(tensors), settings, client};
}

absl::Status CompareIntegers(Settings settings, Client* client,
                             Comparison* comparison) {
  settings.integers = true;
  for (ComparedResult& result : comparison->results) {
    if (ProductsPerElement(comparison->operation.problem,
                           result.request.which) > kExactProducts) {
      result.differing = -1;
    }
  }
  ASSIGN_OR_RETURN(const Experiment experiment,
                   MakeExperiment(comparison->operation, settings, client));
  ASSIGN_OR_RETURN(const Values got, RunTested(experiment));
  ASSIGN_OR_RETURN(const Values expected,
                   RunReference(experiment.operation, experiment));
  for (size_t i = 0; i < got.size(); ++i) {
    ComparedResult& result = comparison->results[i];
    result.elements = std::ssize(got[i]);
    if (result.differing < 0) continue;
    result.differing = CountDiffering(got[i], expected[i]);
  }
  return absl::OkStatus();
}

// The reference's results are rounded to f32. This uses up to an eighth of the
// tolerance of an f32 result and none of others, so the check is stricter than
// the contract, never weaker.
absl::Status CompareReals(Settings settings, Client* client,
                          Comparison* comparison) {
  settings.integers = false;
  ASSIGN_OR_RETURN(const Experiment experiment,
                   MakeExperiment(comparison->operation, settings, client));
  ASSIGN_OR_RETURN(const Values got, RunTested(experiment));
  ASSIGN_OR_RETURN(
      const Values expected,
      RunReference(WithF32Results(experiment.operation), experiment));
  ASSIGN_OR_RETURN(const Values roots, RootsOfSquares(experiment));
  for (size_t i = 0; i < got.size(); ++i) {
    ComparedResult& result = comparison->results[i];
    const ErrorBound bound(experiment.operation, result.request);
    for (size_t j = 0; j < got[i].size(); ++j) {
      const double ref = expected[i][j];
      const double allowed =
          bound.Allowed(ref, std::max(std::fabs(ref), roots[i][j]));
      const double share = std::fabs(got[i][j] - ref) / allowed;
      result.worst = std::isnan(share) ? std::numeric_limits<double>::infinity()
                                       : std::max(result.worst, share);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Comparison> CompareWithReference(Direction direction,
                                                const ConvProblem& problem,
                                                const Settings& settings,
                                                Client* client) {
  const Settings own = OwnSettings(settings, problem);
  Comparison comparison;
  ASSIGN_OR_RETURN(comparison.operation,
                   MakeOperation(direction, problem, own));
  for (const ResultRequest& request : comparison.operation.results) {
    comparison.results.push_back({.request = request});
  }
  absl::Status status = CompareIntegers(own, client, &comparison);
  if (status.ok()) status = CompareReals(own, client, &comparison);
  if (status.code() == absl::StatusCode::kUnimplemented) {
    comparison.results.clear();
    comparison.refusal = std::string(status.message());
    return comparison;
  }
  RETURN_IF_ERROR(status);
  return comparison;
}

}  // namespace convgrad

#include "tests/conformance/nonfinite_check.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "backends/core/logical_tensor.h"
#include "tests/conformance/checked_run.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {
namespace {

// The channels of an element; none if its tensor has no such axis.
struct Channels {
  std::optional<int64_t> in, out;
};

int64_t InnerCount(const Dims& dims) {
  int64_t count = 1;
  for (size_t i = 2; i < dims.size(); ++i) count *= dims[i];
  return count;
}

// Requires: a tensor with channels, i.e. no bias.
int64_t ChannelOf(const Dims& dims, int64_t index) {
  return index / InnerCount(dims) % dims[1];
}

Channels ChannelsOfWeight(const ConvProblem& problem, int64_t index) {
  const Dims dims = WeightDims(problem);
  const int64_t first = index / (InnerCount(dims) * dims[1]);
  const int64_t group = first / (dims[0] / problem.groups);
  const int64_t second = group * dims[1] + ChannelOf(dims, index);
  if (problem.transposed) return {first, second};
  return {second, first};
}

// Returns whether the result element may meet the operand element as a product
// with padding: kernels may multiply by the zeros around an image, within one
// channel.
bool MayMeetInPadding(const ConvProblem& problem, Result result,
                      int64_t result_index, Operand operand,
                      int64_t operand_index) {
  if (operand == Operand::kWeight) {
    const Channels weight = ChannelsOfWeight(problem, operand_index);
    if (result == Result::kOutput) {
      return ChannelOf(OutputDims(problem), result_index) == weight.out;
    }
    return result == Result::kGradInput &&
           ChannelOf(InputDims(problem), result_index) == weight.in;
  }
  if (result != Result::kGradWeight) return false;
  const Channels weight = ChannelsOfWeight(problem, result_index);
  return operand == Operand::kInput
             ? ChannelOf(InputDims(problem), operand_index) == weight.in
             : ChannelOf(OutputDims(problem), operand_index) == weight.out;
}

testing::AssertionResult CheckResult(const ConvOperation& operation,
                                     const ExactOperands& operands, size_t i,
                                     const void* data, Operand poisoned,
                                     int64_t position) {
  const ResultRequest& request = operation.results[i];
  const std::vector<double> expected =
      ExactResult(operation, request.which, operands);
  const std::vector<double> got = LoadLogical(request.descriptor, data);
  for (size_t at = 0; at < got.size(); ++at) {
    bool is_right = !std::isfinite(got[at]);
    if (std::isfinite(expected[at])) {
      is_right = got[at] == RoundedTo(request.descriptor.dtype, expected[at]) ||
                 MayMeetInPadding(operation.problem, request.which,
                                  static_cast<int64_t>(at), poisoned, position);
    }
    if (is_right) continue;
    return testing::AssertionFailure()
           << ToString(operation) << ": with Inf at element " << position
           << " of " << NameOf(poisoned) << ", element " << at << " of "
           << NameOf(request.which) << " is " << got[at] << ", expected "
           << expected[at];
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult CheckPoisoned(const Backend& backend,
                                       const ConvOperation& operation,
                                       ExactOperands operands, Operand poisoned,
                                       int64_t position) {
  operands[static_cast<size_t>(poisoned)][position] =
      std::numeric_limits<double>::infinity();
  const auto results = RunChecked(backend, operation, operands);
  if (absl::IsUnimplemented(results.status())) {
    return testing::AssertionSuccess();
  }
  if (!results.ok()) return testing::AssertionFailure() << results.status();
  for (size_t i = 0; i < results->size(); ++i) {
    const auto checked = CheckResult(operation, operands, i,
                                     (*results)[i].data(), poisoned, position);
    if (!checked) return checked;
  }
  return testing::AssertionSuccess();
}

}  // namespace

testing::AssertionResult KeepsNonfiniteApart(const Backend& backend,
                                             const ConvOperation& operation) {
  ExactOperands operands;
  for (Operand which : kAllOperands) {
    if (!operation.operand(which)) continue;
    const auto i = static_cast<size_t>(which);
    operands[i] = IntegerFill(ElementCount(*operation.operand(which)), i);
  }
  for (Operand which :
       {Operand::kInput, Operand::kWeight, Operand::kGradOutput}) {
    const auto count =
        static_cast<int64_t>(operands[static_cast<size_t>(which)].size());
    if (count == 0) continue;
    // The neighbours of these positions are in other channels, groups or
    // images.
    for (int64_t position : {count * 5 / 9, count - 1}) {
      const auto checked =
          CheckPoisoned(backend, operation, operands, which, position);
      if (!checked) return checked;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace convgrad::testing_support

// Computes dims, bias shapes and work of a valid problem.
#include <algorithm>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "backends/core/checked_math.h"
#include "backends/core/convolution/conv_problem.h"

namespace convgrad {

int64_t MeaningfulStride(const SpatialAxis& axis) {
  if (axis.out != 1) return axis.stride;
  const int64_t padded = axis.in + axis.pad_begin + axis.pad_end;
  return std::min(axis.stride, std::max(int64_t{1}, padded));
}

Dims InputDims(const ConvProblem& problem) {
  Dims dims = {problem.batch, problem.in_channels};
  for (const SpatialAxis& axis : problem.axes) dims.push_back(axis.in);
  return dims;
}

Dims WeightDims(const ConvProblem& problem) {
  Dims dims = {problem.out_channels, problem.in_channels / problem.groups};
  if (problem.transposed) {
    dims = {problem.in_channels, problem.out_channels / problem.groups};
  }
  for (const SpatialAxis& axis : problem.axes) dims.push_back(axis.kernel);
  return dims;
}

Dims OutputDims(const ConvProblem& problem) {
  Dims dims = {problem.batch, problem.out_channels};
  for (const SpatialAxis& axis : problem.axes) dims.push_back(axis.out);
  return dims;
}

Dims PerChannelBiasDims(const ConvProblem& problem) {
  return {problem.out_channels};
}

bool IsBiasShape(const ConvProblem& problem, const Dims& bias) {
  if (bias.empty()) return true;
  if (bias.size() == 1) return bias[0] == 1 || bias[0] == problem.out_channels;
  return absl::c_equal(
      bias, OutputDims(problem),
      [](int64_t own, int64_t output) { return own == 1 || own == output; });
}

Dims BroadcastBiasDims(const ConvProblem& problem, const Dims& bias) {
  const Dims output = OutputDims(problem);
  if (bias.size() == output.size()) return bias;
  Dims broadcast(output.size(), 1);
  if (!bias.empty()) broadcast[1] = bias[0];
  return broadcast;
}

int64_t MultiplyAdds(const ConvProblem& problem) {
  // A transposed convolution needs as many as its mirror, whose output is this
  // one's input.
  int64_t total = SaturatingMul(problem.batch, problem.out_channels);
  total = SaturatingMul(total, problem.in_channels / problem.groups);
  for (const SpatialAxis& axis : problem.axes) {
    total = SaturatingMul(total, problem.transposed ? axis.in : axis.out);
    total = SaturatingMul(total, axis.kernel);
  }
  return total;
}

}  // namespace convgrad

#include "tests/conformance/random_problem.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace convgrad::testing_support {
namespace {

// Returns a number from low to high, inclusive.
int64_t Pick(int64_t low, int64_t high, std::mt19937* random) {
  return low + static_cast<int64_t>((*random)() % (high - low + 1));
}

SpatialAxis RandomAxis(bool transposed, std::mt19937* random) {
  SpatialAxis axis;
  // Some axes exceed one block of vector registers.
  axis.in = Pick(0, 3, random) ? Pick(1, 12, random) : Pick(13, 70, random);
  axis.kernel = Pick(0, 7, random) ? Pick(1, 5, random) : Pick(6, 9, random);
  axis.stride = Pick(1, 3, random);
  axis.dilation = Pick(1, 3, random);
  axis.pad_begin = Pick(0, 3, random);
  axis.pad_end = Pick(0, 1, random) ? axis.pad_begin : Pick(0, 3, random);
  if (transposed) {
    axis.output_padding =
        Pick(0, std::max(axis.stride, axis.dilation) - 1, random);
  }
  return axis;
}

std::optional<Dims> RandomBias(const ConvProblem& problem,
                               std::mt19937* random) {
  switch (Pick(0, 4, random)) {
    case 0:
      return std::nullopt;
    case 1:
      return std::optional<Dims>(std::in_place);
    case 2:
      return std::optional<Dims>(std::in_place, 1, 1);
    case 3:
      return PerChannelBiasDims(problem);
    default:
      Dims bias = OutputDims(problem);
      for (int64_t& extent : bias) extent = Pick(0, 1, random) ? extent : 1;
      return bias;
  }
}

}  // namespace

ConvProblem RandomProblem(std::mt19937* random) {
  while (true) {
    ConvProblem problem;
    problem.transposed = Pick(0, 1, random);
    // Every eighth problem has no batch.
    problem.batch = Pick(0, 7, random) ? Pick(1, 3, random) : 0;
    // Every fourth problem is depthwise, with a multiplier.
    const bool depthwise = Pick(0, 3, random) == 0;
    problem.groups = Pick(1, depthwise ? 40 : 4, random);
    problem.in_channels = problem.groups * Pick(1, depthwise ? 1 : 20, random);
    problem.out_channels = problem.groups * Pick(1, depthwise ? 3 : 20, random);
    problem.axes.resize(Pick(0, 3, random));
    for (SpatialAxis& axis : problem.axes) {
      axis = RandomAxis(problem.transposed, random);
    }
    problem.relu = Pick(0, 1, random);
    problem.residual = Pick(0, 1, random);
    auto resolved = Resolve(problem, {});
    if (!resolved.ok()) continue;
    resolved->bias = RandomBias(*resolved, random);
    return *std::move(resolved);
  }
}

std::vector<std::string> RandomProblems(int count, uint32_t seed,
                                        int64_t max_macs) {
  std::mt19937 random(seed);
  std::set<std::string> seen;
  std::vector<std::string> problems;
  while (static_cast<int>(problems.size()) < count) {
    const ConvProblem problem = RandomProblem(&random);
    if (MultiplyAdds(problem) > max_macs) continue;
    const std::string text = ToString(problem);
    if (seen.insert(text).second) problems.push_back(text);
  }
  return problems;
}

}  // namespace convgrad::testing_support

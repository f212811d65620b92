#include "backends/cuda/cuda_forbidden_engines.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace convgrad::cuda {
namespace {

// The problems that an engine computes wrongly.
enum class Domain { kAll, kGroups, kStrides, kGroupsOrStrides };

struct Rule {
  Pass pass;
  const char* engine;
  Domain domain;
};

constexpr Rule kRules[] = {
    // Inf reaches the sums of other groups or of other channels.
    {Pass::kForward, "eng22", Domain::kGroups},
    {Pass::kForward, "eng47", Domain::kAll},
    // Inf reaches the sums of other groups, or pixels between the strides.
    {Pass::kBackwardData, "eng22", Domain::kGroups},
    {Pass::kBackwardData, "eng40", Domain::kGroupsOrStrides},
    {Pass::kBackwardData, "eng43", Domain::kStrides},
    {Pass::kBackwardData, "eng46", Domain::kGroups},
    {Pass::kBackwardData, "eng57", Domain::kStrides},
    {Pass::kBackwardData, "eng67", Domain::kGroups},
    // Doesn't write the pixels after the last window, either.
    {Pass::kBackwardData, "eng78", Domain::kGroupsOrStrides},
    // Rounds products, as Winograd's algorithm or FFT does.
    {Pass::kBackwardWeight, "eng17", Domain::kAll},
    // Round parts of the sum to 16 bits before they add them.
    {Pass::kBackwardWeight, "eng61", Domain::kAll},
    {Pass::kBackwardWeight, "eng62", Domain::kAll},
    // Returns wrong sums if channels come first.
    {Pass::kBackwardWeight, "eng70", Domain::kStrides},
};

bool HasStrides(const ConvProblem& problem) {
  return std::any_of(problem.axes.begin(), problem.axes.end(),
                     [](const SpatialAxis& axis) { return axis.stride > 1; });
}

bool IsIn(Domain domain, const ConvProblem& problem) {
  switch (domain) {
    case Domain::kAll:
      return true;
    case Domain::kGroups:
      return problem.groups > 1;
    case Domain::kStrides:
      return HasStrides(problem);
    case Domain::kGroupsOrStrides:
      return problem.groups > 1 || HasStrides(problem);
  }
  return true;
}

// Adds the engines that cut a sum into k0 > 1 parts, and round each part to the
// result's 16 bits before they add them.
void AddSplitSums(std::vector<std::string>* engines) {
  for (int digit = 0; digit <= 9; ++digit) {
    if (digit > 1) engines->push_back(absl::StrCat("_k0=", digit));
    engines->push_back(absl::StrCat("_k0=1", digit));
  }
}

}  // namespace

std::vector<std::string> ForbiddenEngines(const GraphSpec& spec) {
  std::vector<std::string> engines;
  if (spec.result != DataType::kF32) AddSplitSums(&engines);
  for (const Rule& rule : kRules) {
    if (rule.pass == spec.pass && IsIn(rule.domain, spec.problem)) {
      engines.push_back(rule.engine);
    }
  }
  return engines;
}

}  // namespace convgrad::cuda

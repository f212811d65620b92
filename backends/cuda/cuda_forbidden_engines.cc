#include "backends/cuda/cuda_forbidden_engines.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace convgrad::cuda {
namespace {

// The problems that an engine computes wrongly, as bits.
enum Domain { kGroups = 1, kStrides = 2, kAll = 4 };

struct Rule {
  Pass pass;
  const char* engine;
  int domain;
};

constexpr Rule kRules[] = {
    // Inf reaches the sums of other groups or of other channels.
    {Pass::kForward, "eng22", kGroups},
    {Pass::kForward, "eng47", kAll},
    // Inf reaches the sums of other groups, or pixels between the strides.
    {Pass::kBackwardData, "eng22", kGroups},
    {Pass::kBackwardData, "eng40", kGroups | kStrides},
    {Pass::kBackwardData, "eng43", kStrides},
    {Pass::kBackwardData, "eng46", kGroups},
    {Pass::kBackwardData, "eng57", kStrides},
    {Pass::kBackwardData, "eng67", kGroups},
    // Doesn't write the pixels after the last window, either.
    {Pass::kBackwardData, "eng78", kGroups | kStrides},
    // Rounds products, as Winograd's algorithm or FFT does.
    {Pass::kBackwardWeight, "eng17", kAll},
    // Round parts of the sum to 16 bits before they add them.
    {Pass::kBackwardWeight, "eng61", kAll},
    {Pass::kBackwardWeight, "eng62", kAll},
    // Returns wrong sums if channels come first.
    {Pass::kBackwardWeight, "eng70", kStrides},
};

bool HasStrides(const ConvProblem& problem) {
  return std::any_of(problem.axes.begin(), problem.axes.end(),
                     [](const SpatialAxis& axis) { return axis.stride > 1; });
}

bool IsIn(int domain, const ConvProblem& problem) {
  return domain == kAll || ((domain & kGroups) != 0 && problem.groups > 1) ||
         ((domain & kStrides) != 0 && HasStrides(problem));
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

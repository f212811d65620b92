#include "backends/proof/way.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace convgrad {
namespace {

// Returns "" without a bias, else a letter for each axis along which the bias
// differs, and 1 for the others.
std::string BiasKind(const ConvProblem& problem) {
  if (!problem.bias) return "";
  constexpr absl::string_view kAxes = "nodhw";
  const Dims dims = BroadcastBiasDims(problem, *problem.bias);
  std::string kind;
  for (size_t i = 0; i < dims.size(); ++i) {
    kind.push_back(dims[i] == 1 ? '1' : kAxes[i]);
  }
  return kind;
}

absl::string_view GroupsKind(const ConvProblem& problem) {
  if (problem.groups == 1) return "";
  return problem.in_channels == problem.groups ? " depthwise" : " grouped";
}

// Returns whether the channels of a group end inside a vector, because other
// code handles such a tail. If each group has one channel, a vector holds
// the channels of several groups.
absl::string_view TailOf(int64_t channels, int64_t groups) {
  const int64_t adjacent = channels == groups ? channels : channels / groups;
  return adjacent % 16 == 0 ? "" : "+";
}

}  // namespace

std::string WayOf(const ConvOperation& operation,
                  absl::string_view implementation) {
  const ConvProblem& problem = operation.problem;
  std::string way = absl::StrCat(
      implementation, " ", NameOf(operation.direction),
      problem.transposed ? " transposed" : "", " ", problem.axes.size(), "d",
      GroupsKind(problem), " c", TailOf(problem.in_channels, problem.groups),
      " o", TailOf(problem.out_channels, problem.groups),
      problem.bias ? " bias " : "", BiasKind(problem),
      problem.relu ? " relu" : "");
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor) continue;
    absl::StrAppend(&way, " ", NameOf(which), "=", StorageText(*tensor));
  }
  absl::StrAppend(&way, " ->");
  for (const ResultRequest& request : operation.results) {
    absl::StrAppend(&way, " ", NameOf(request.which), "=",
                    StorageText(request.descriptor),
                    request.scale == 1 ? "" : "*scale");
  }
  return way;
}

std::string FamilyOf(const ConvOperation& operation, Result which) {
  ConvOperation single = operation;
  single.results = {*operation.result(which)};
  DropUnneeded(&single);
  std::vector<absl::string_view> layouts;
  const auto add = [&layouts](const TensorDescriptor& tensor) {
    const absl::string_view name = NameOf(tensor.layout);
    if (std::find(layouts.begin(), layouts.end(), name) == layouts.end()) {
      layouts.push_back(name);
    }
  };
  for (Operand operand : kAllOperands) {
    // A bias has only one layout.
    if (operand == Operand::kBias || !single.operand(operand)) continue;
    add(*single.operand(operand));
  }
  if (which != Result::kGradBias) add(single.results[0].descriptor);
  const bool has_bias = single.operand(Operand::kBias).has_value();
  const bool has_residual = single.operand(Operand::kResidual).has_value();
  return absl::StrCat(NameOf(operation.dtype()),
                      operation.problem.transposed ? " transposed " : " ",
                      NameOf(which), has_bias ? " with bias" : "",
                      !has_residual ? ""
                      : has_bias    ? " and residual"
                                    : " with residual",
                      " in ", absl::StrJoin(layouts, "/"));
}

absl::string_view PiecesOf(absl::string_view implementation) {
  const size_t open = implementation.find('(');
  if (open == implementation.npos || implementation.find('=') < open ||
      !absl::EndsWith(implementation, ")")) {
    return implementation;
  }
  return implementation.substr(open + 1, implementation.size() - open - 2);
}

}  // namespace convgrad

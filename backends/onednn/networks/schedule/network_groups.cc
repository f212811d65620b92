#include "backends/onednn/networks/schedule/network_groups.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace convgrad::onednn {
namespace {

// The only users of values, by index into the program's steps.
class Uses {
 public:
  explicit Uses(const convgrad::Program& program)
      : program_(program),
        users_(program.steps.size(), GroupSteps::kNone),
        convolutions_(program.steps.size(), GroupSteps::kNone) {
    absl::flat_hash_map<absl::string_view, std::vector<size_t>> users;
    for (size_t i = 0; i < program.steps.size(); ++i) {
      for (const std::string& operand : program.steps[i].operands) {
        users[operand].push_back(i);
      }
    }
    for (const std::string& output : program.outputs) {
      users[output].push_back(GroupSteps::kNone);
    }
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const std::vector<size_t>& found = users[program.steps[i].result];
      if (found.size() != 1 || found[0] == GroupSteps::kNone) continue;
      users_[i] = found[0];
      if (program.steps[i].op == Operator::kConv) convolutions_[found[0]] = i;
    }
  }

  // Returns the last convolution before `step` whose result only `step` uses,
  // once; kNone if there is none.
  size_t OnlyConvolutionFor(size_t step) const { return convolutions_[step]; }

  // Return the only user of the result of `step`, if its operator is `op`, or
  // if `fits` returns true for it.
  size_t OnlyUser(size_t step, Operator op) const {
    return OnlyUser(step, [=](Operator other) { return other == op; });
  }
  size_t OnlyUser(size_t step, absl::FunctionRef<bool(Operator)> fits) const {
    const size_t user = users_[step];
    return user != GroupSteps::kNone && fits(program_.steps[user].op)
               ? user
               : GroupSteps::kNone;
  }

 private:
  const convgrad::Program& program_;
  std::vector<size_t> users_;
  std::vector<size_t> convolutions_;
};

bool IsRunningNorm(const ProgramStep& step) {
  return step.op == Operator::kBatchNorm && !BoolAttribute(step, "training");
}

bool TakesConvolution(const ProgramStep& first, const ProgramShapes& shapes) {
  return IsRunningNorm(first) || EndsConvolution(first.op) ||
         (first.op == Operator::kAdd && HasEqualShapes(first, shapes));
}

// Returns the group of `first` without a convolution. With `may_join`, one may
// join it.
GroupSteps GroupOf(const convgrad::Program& program,
                   const ProgramShapes& shapes, const Uses& uses,
                   const std::vector<bool>& is_taken, size_t first,
                   bool may_join) {
  GroupSteps group = {first};
  const Operator op = program.steps[first].op;
  if (op == Operator::kBatchNorm) {
    const size_t add = uses.OnlyUser(first, Operator::kAdd);
    const bool fuses = add != GroupSteps::kNone && !is_taken[add] &&
                       HasEqualShapes(program.steps[add], shapes);
    if (fuses) group.add = add;
  }
  const bool may_end_in_relu =
      op == Operator::kBatchNorm ||
      (op == Operator::kAdd && HasEqualShapes(program.steps[first], shapes));
  const bool may_end_in_relu6 =
      op == Operator::kBatchNorm && group.last() == first;
  const bool joins_convolution =
      may_join && TakesConvolution(program.steps[first], shapes) &&
      uses.OnlyConvolutionFor(first) != GroupSteps::kNone;
  if (may_end_in_relu) {
    group.activation = uses.OnlyUser(group.last(), [&](Operator activation) {
      return activation == Operator::kRelu ||
             (activation == Operator::kRelu6
                  ? may_end_in_relu6
                  : joins_convolution && EndsConvolution(activation));
    });
  }
  return group;
}

std::vector<GroupSteps> EachByItself(const convgrad::Program& program) {
  std::vector<GroupSteps> groups(program.steps.size());
  for (size_t i = 0; i < groups.size(); ++i) groups[i].first = i;
  return groups;
}

// Joins the convolutions with the groups that follow them.
void JoinConvolutions(const convgrad::Program& program,
                      const ProgramShapes& shapes, const Uses& uses,
                      std::vector<GroupSteps>* groups) {
  std::vector<bool> is_taken(program.steps.size());
  for (GroupSteps& group : *groups) {
    if (!TakesConvolution(program.steps[group.first], shapes)) continue;
    group.convolution = uses.OnlyConvolutionFor(group.first);
    if (group.convolution != GroupSteps::kNone) {
      is_taken[group.convolution] = true;
    }
  }
  groups->erase(std::remove_if(groups->begin(), groups->end(),
                               [&](const GroupSteps& group) {
                                 return is_taken[group.first];
                               }),
                groups->end());
}

}  // namespace

bool EndsConvolution(Operator op) {
  return op == Operator::kRelu || op == Operator::kRelu6 ||
         op == Operator::kLeakyRelu || op == Operator::kSilu ||
         op == Operator::kHardswish;
}

bool HasEqualShapes(const ProgramStep& step, const ProgramShapes& shapes) {
  const std::string& b = OperandAt(step, 1);
  return !b.empty() && shapes.dims.at(step.operands[0]) == shapes.dims.at(b);
}

std::vector<size_t> GroupSteps::members() const {
  std::vector<size_t> all;
  for (const size_t member : {convolution, first, add, activation}) {
    if (member != kNone) all.push_back(member);
  }
  return all;
}

Fusion FusionOf(const ProgramRequest& request) {
  if (!request.fuse) return Fusion::kNone;
  return request.part == ProgramPart::kForward ? Fusion::kOfInference
                                               : Fusion::kOfTraining;
}

std::vector<GroupSteps> FindGroups(const convgrad::Program& program,
                                   const ProgramShapes& shapes, Fusion fusion) {
  if (fusion == Fusion::kNone) return EachByItself(program);
  const Uses uses(program);
  std::vector<bool> is_taken(program.steps.size());
  std::vector<GroupSteps> groups;
  // Visits the steps from last to first. If two batch_norms feed one add, the
  // later one is fused with it, because the result of the earlier one is
  // already available at that point. A batch_norm comes before the steps fused
  // with it. So batch_norms must be visited before adds and activations, which
  // may belong to the group of an earlier batch_norm.
  std::vector<size_t> batch_norms_first(program.steps.size());
  std::iota(batch_norms_first.rbegin(), batch_norms_first.rend(), 0);
  for (const Operator op : {Operator::kAdd, Operator::kBatchNorm}) {
    std::stable_partition(batch_norms_first.begin(), batch_norms_first.end(),
                          [&](size_t i) { return program.steps[i].op == op; });
  }
  for (const size_t i : batch_norms_first) {
    if (is_taken[i]) continue;
    const GroupSteps group = GroupOf(program, shapes, uses, is_taken, i,
                                     fusion == Fusion::kOfInference);
    for (const size_t member : {group.first, group.add, group.activation}) {
      if (member != GroupSteps::kNone) is_taken[member] = true;
    }
    groups.push_back(group);
  }
  std::sort(groups.begin(), groups.end(),
            [](const GroupSteps& a, const GroupSteps& b) {
              return a.last() < b.last();
            });
  if (fusion == Fusion::kOfInference) {
    JoinConvolutions(program, shapes, uses, &groups);
  }
  return groups;
}

std::vector<std::vector<std::string>> NamesOf(
    const convgrad::Program& program, const std::vector<GroupSteps>& groups) {
  std::vector<std::vector<std::string>> names;
  for (const GroupSteps& group : groups) {
    std::vector<std::string>& results = names.emplace_back();
    for (const size_t member : group.members()) {
      results.push_back(program.steps[member].result);
    }
  }
  return names;
}

std::vector<std::string> HiddenValues(const convgrad::Program& program,
                                      const ProgramShapes& shapes,
                                      Fusion fusion) {
  std::vector<std::string> hidden;
  for (const GroupSteps& group : FindGroups(program, shapes, fusion)) {
    for (const size_t member : group.members()) {
      if (member == group.last()) continue;
      hidden.push_back(program.steps[member].result);
    }
  }
  return hidden;
}

}  // namespace convgrad::onednn

#include "backends/onednn/networks/steps/network_steps.h"

#include <utility>

namespace convgrad::onednn {

const NetworkOperator& NetworkOperatorOf(Operator op) {
  static const auto& table =
      *new std::vector<NetworkOperator>(OperatorTable<NetworkOperator>(
          {NetworkConvolutions(),  NetworkLinear(),      NetworkNorms(),
           NetworkActivations(),   NetworkArithmetic(),  NetworkPoolings(),
           NetworkReductions(),    NetworkGroupNorm(),   NetworkCopies(),
           NetworkMoves(),         NetworkViews(),       NetworkRowNorms(),
           NetworkSoftmax(),       NetworkMatmul(),      NetworkAttention(),
           NetworkNormalize(),     NetworkDropout(),     NetworkWhere(),
           NetworkElementLosses(), NetworkCrossEntropy()}));
  return table[static_cast<size_t>(op)];
}

std::unique_ptr<NetworkGroup> MakeGroup(const convgrad::Program& program,
                                        const ProgramShapes& shapes,
                                        const GroupSteps& steps) {
  const auto make = [&](const GroupSteps& some) {
    return NetworkOperatorOf(program.steps[some.first].op)
        .make(program, shapes, some);
  };
  if (steps.convolution == GroupSteps::kNone) return make(steps);
  // Without a convolution, only a relu or relu6 is fused.
  GroupSteps first = steps;
  std::vector<std::unique_ptr<NetworkGroup>> others;
  const bool is_apart = steps.activation != GroupSteps::kNone &&
                        program.steps[steps.activation].op != Operator::kRelu &&
                        program.steps[steps.activation].op != Operator::kRelu6;
  if (is_apart) first.activation = GroupSteps::kNone;
  others.push_back(make(first));
  if (is_apart) others.push_back(make({steps.activation}));
  return MakeFusedConvolution(program, shapes, steps, std::move(others));
}

}  // namespace convgrad::onednn

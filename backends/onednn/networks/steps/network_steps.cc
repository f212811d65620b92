#include "backends/onednn/networks/steps/network_steps.h"

#include <utility>

namespace convgrad::onednn {

const NetworkOperator& NetworkOperatorOf(Operator op) {
  static const auto& table =
      *new std::vector<NetworkOperator>(OperatorTable<NetworkOperator>(
          {NetworkConvolutions(), NetworkLinear(), NetworkNorms(),
           NetworkActivations(), NetworkArithmetic(), NetworkPoolings(),
           NetworkReductions(), NetworkGroupNorm(), NetworkCopies(),
           NetworkMoves(), NetworkViews(), NetworkRowNorms(), NetworkSoftmax(),
           NetworkMatmul(), NetworkAttention(), NetworkNormalize(),
           NetworkDropout(), NetworkElementLosses(), NetworkCrossEntropy()}));
  return table[static_cast<size_t>(op)];
}

std::unique_ptr<NetworkGroup> MakeGroup(const convgrad::Program& program,
                                        const ProgramShapes& shapes,
                                        const GroupSteps& steps) {
  auto group = NetworkOperatorOf(program.steps[steps.first].op)
                   .make(program, shapes, steps);
  return steps.convolution == GroupSteps::kNone
             ? std::move(group)
             : MakeFusedConvolution(program, shapes, steps, std::move(group));
}

}  // namespace convgrad::onednn

#include "backends/onednn/networks/steps/network_steps.h"

#include "backends/core/checked_math.h"

namespace convgrad::onednn {

const NetworkOperator& NetworkOperatorOf(Operator op) {
  static const auto& table =
      *new std::vector<NetworkOperator>(OperatorTable<NetworkOperator>(
          {NetworkConvolutions(), NetworkLinear(), NetworkNorms(),
           NetworkActivations(), NetworkArithmetic(), NetworkPoolings(),
           NetworkCopies(), NetworkNormalize(), NetworkDropout(), NetworkMse(),
           NetworkCrossEntropy()}));
  return table[static_cast<size_t>(op)];
}

int64_t ChannelTableBytes(const Dims& x) {
  constexpr int64_t kMostPadding = 15;
  return SaturatingMul(3 * int64_t{sizeof(float)},
                       SaturatingAdd(x[1], kMostPadding));
}

std::unique_ptr<NetworkGroup> MakeGroup(const convgrad::Program& program,
                                        const ProgramShapes& shapes,
                                        const GroupSteps& steps) {
  if (steps.convolution != GroupSteps::kNone) {
    return MakeFusedConvolution(program, shapes, steps);
  }
  return NetworkOperatorOf(program.steps[steps.first].op)
      .make(program, shapes, steps);
}

}  // namespace convgrad::onednn

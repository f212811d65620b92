#include "backends/onednn/networks/steps/network_steps.h"

namespace convgrad::onednn {

std::unique_ptr<NetworkGroup> MakeGroup(const convgrad::Program& program,
                                        const ProgramShapes& shapes,
                                        const GroupSteps& steps) {
  if (steps.convolution != GroupSteps::kNone) {
    return MakeFusedConvolution(program, shapes, steps);
  }
  const ProgramStep& step = program.steps[steps.first];
  switch (step.op) {
    case Operator::kConv:
    case Operator::kConvTranspose:
      return MakeConvolution(step);
    case Operator::kLinear:
      return MakeLinear(step);
    case Operator::kBatchNorm:
      return MakeNorm(program, steps);
    case Operator::kAdd:
      return HasEqualShapes(step, shapes) ? MakeAdd(program, steps)
                                          : MakeBroadcast(step);
    case Operator::kMul:
      return HasEqualShapes(step, shapes) ? MakeProduct(step)
                                          : MakeBroadcast(step);
    case Operator::kMaxPool:
    case Operator::kAvgPool:
    case Operator::kAdaptiveAvgPool:
    case Operator::kUpsample:
      return MakePooling(step);
    case Operator::kConcat:
      return MakeConcat(step);
    case Operator::kFlatten:
      return MakeFlatten(step);
    case Operator::kNormalize:
      return MakeNormalize(step);
    case Operator::kDropout:
      return MakeDropout(program, steps.first);
    case Operator::kCrossEntropy:
      return MakeCrossEntropy(step);
    case Operator::kMse:
      return MakeMse(step);
    case Operator::kRelu:
    case Operator::kRelu6:
    case Operator::kLeakyRelu:
    case Operator::kSigmoid:
    case Operator::kSilu:
      break;
  }
  return MakeActivation(step);
}

}  // namespace convgrad::onednn

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

struct Functions {
  ForwardFunction forward;
  BackwardFunction backward;
};

Functions FunctionsOf(Operator op) {
  switch (op) {
    case Operator::kConv:
    case Operator::kConvTranspose:
    case Operator::kLinear:
      return {&ConvolutionForward, &ConvolutionBackward};
    case Operator::kBatchNorm:
      return {&BatchNormForward, &BatchNormBackward};
    case Operator::kMaxPool:
      return {&MaxPoolForward, &MaxPoolBackward};
    case Operator::kAvgPool:
    case Operator::kAdaptiveAvgPool:
    case Operator::kUpsample:
      return {&SeparableForward, &SeparableBackward};
    case Operator::kRelu:
    case Operator::kRelu6:
    case Operator::kLeakyRelu:
    case Operator::kSigmoid:
    case Operator::kSilu:
      return {&ActivationForward, &ActivationBackward};
    case Operator::kAdd:
    case Operator::kMul:
      return {&BroadcastForward, &BroadcastBackward};
    case Operator::kConcat:
    case Operator::kFlatten:
      return {&CopyForward, &CopyBackward};
    case Operator::kNormalize:
      return {&NormalizeForward, &NormalizeBackward};
    case Operator::kDropout:
      return {&DropoutForward, &DropoutBackward};
    case Operator::kCrossEntropy:
      return {&CrossEntropyForward, &CrossEntropyBackward};
    case Operator::kMse:
      break;
  }
  return {&MseForward, &MseBackward};
}

}  // namespace

ForwardFunction ForwardOf(Operator op) { return FunctionsOf(op).forward; }

BackwardFunction BackwardOf(Operator op) { return FunctionsOf(op).backward; }

}  // namespace convgrad

// Computes element-wise functions of activations, and their gradients. NaN
// propagates.
//
// Thread-safe. Buffers need no alignment; a result may be written in place of
// an operand.
#pragma once

#include <cstdint>

#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// The functions, with PyTorch's names and formulas. alpha and beta are members
// of Pointwise.
enum class Activation {
  kNone,
  kRelu,
  kRelu6,
  kLeakyRelu,  // alpha: the slope
  kSigmoid,
  kSilu,
  kTanh,
  kElu,  // alpha
  kGelu,
  kGeluTanh,
  kHardsigmoid,
  kHardswish,
  kHardtanh,  // limits x to alpha and beta
  kClamp,     // the same; an infinite limit isn't there. Flat at NaN
  kMish,
  kSoftplus,  // alpha: PyTorch's beta; beta: the threshold
  kAbs,
  kExp,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kLog,
  kPow,  // x to the power alpha
  kSin,
  kCos,
  kNeg,
  kShift,     // x + alpha
  kScale,     // x * alpha
  kQuotient,  // x / alpha
};

struct Pointwise {
  Activation activation = Activation::kNone;
  double alpha = 0;
  float beta = 0;
};

// y = act(x).
void Activate(const ChannelBlocks& blocks, Pointwise op, const void* x, void* y,
              RunParts run);

// dx = dy * act'(x), with PyTorch's value where act has no derivative. `saved`
// is the forward's result if SavesResult, else its operand.
struct ActivateGradient {
  const void* dy;
  const void* saved;
  void* dx;
};
void RunActivateGradient(const ChannelBlocks& blocks, Pointwise op,
                         const ActivateGradient& tensors, RunParts run);
bool SavesResult(Activation activation);
// Returns whether the gradient doesn't depend on the values of `saved`.
bool IsLinear(Activation activation);

}  // namespace convgrad

// Element-wise operators between activations of one shape and layout, and their
// gradients. NaN goes through all of them.
//
// Thread-safe. Buffers need no alignment; a result may be written in place of
// an operand.
#pragma once

#include <cstdint>

#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

enum class Activation {
  kNone,
  kRelu,
  kRelu6,
  kLeakyRelu,
  kSigmoid,
  kSilu,
  kTanh
};

struct Pointwise {
  Activation activation = Activation::kNone;
  float negative_slope = 0.01f;  // of kLeakyRelu
};

// y = act(x).
void Activate(const ChannelBlocks& blocks, Pointwise op, const void* x, void* y,
              RunParts run);

// dx = dy * act'(x), as PyTorch has it where act has no derivative. `saved` is
// what SavesResult says: the forward's result, or its operand.
struct ActivateGradient {
  const void* dy;
  const void* saved;
  void* dx;
};
bool SavesResult(Activation activation);
void RunActivateGradient(const ChannelBlocks& blocks, Pointwise op,
                         const ActivateGradient& tensors, RunParts run);

// y = act(a + b), rounded once; with kNone and y == a, an accumulation.
struct Operands {
  const void* a;
  const void* b;
  void* y;
};
void Add(const ChannelBlocks& blocks, Pointwise op, const Operands& tensors,
         RunParts run);

// y = a * b.
void Multiply(const ChannelBlocks& blocks, const Operands& tensors,
              RunParts run);

}  // namespace convgrad

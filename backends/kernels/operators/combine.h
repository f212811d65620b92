// Arithmetic of two activations of one shape and layout, or of one with a
// number for each channel. NaN goes through all of it.
//
// Thread-safe. Buffers need no alignment; a result may be written in place of
// an operand.
#pragma once

#include <cstdint>

#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

enum class Combination {
  kAdd,
  kAddRelu,  // relu(a + b), rounded once
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kPrelu,  // a where it is above 0, else a * b
  // Of dy, a and b: the gradient of b in a / b; and dy where a is not less, or
  // not greater, than b, half of it where they are equal.
  kDivisorGradient,
  kNotLessGradient,
  kNotGreaterGradient,
  // Of dy, a and b: the gradients of a and of b in kPrelu.
  kPreluGradient,
  kSlopeGradient,
};

struct Combined {
  const void* a = nullptr;
  const void* b = nullptr;  // null: `numbers` instead
  void* y = nullptr;
  const void* dy = nullptr;  // of the gradients
  // f32. Image n takes its numbers from n * image_stride on: 0, the same for
  // all images; or padded_channels(). Those of padding must be zeros.
  const float* numbers = nullptr;
  int64_t image_stride = 0;
};

// y = a combined with b.
void Combine(const ChannelBlocks& blocks, Combination combination,
             const Combined& tensors, RunParts run);

}  // namespace convgrad

// `Combine` combines two or three activations of the same shape and layout; one
// number per channel may replace b. NaN propagates, except through comparisons.
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
  // Comparisons of a with b: 1 or 0.
  kEq,
  kLt,
  kLe,
  kGt,
  kGe,
  // a where b isn't 0, or where b is 0; else 0.
  kIfNotZero,
  kIfZero,
  // Takes three operands: a where the condition isn't 0, else b. NaN where the
  // condition is NaN.
  kWhere,
  // Gradients, from dy, a and b: of b in a / b; and dy where a is not less, or
  // not greater, than b, halved where they are equal.
  kDivisorGradient,
  kNotLessGradient,
  kNotGreaterGradient,
  // The gradients of a and of b in kPrelu, from dy, a and b.
  kPreluGradient,
  kSlopeGradient,
};

// Returns whether it combines dy, or a condition, with a and b.
constexpr bool IsOfThree(Combination combination) {
  return combination >= Combination::kWhere;
}

struct Combined {
  const void* a = nullptr;
  const void* b = nullptr;  // null: `numbers` instead
  void* y = nullptr;
  const void* dy = nullptr;  // only for gradients; the condition of kWhere
  // f32. The numbers of image n begin at n * image_stride, which is 0 (the same
  // numbers for all images) or padded_channels(). The numbers of padding must
  // be zeros.
  const float* numbers = nullptr;
  int64_t image_stride = 0;
};

// Writes y, the combination of a and b.
void Combine(const ChannelBlocks& blocks, Combination combination,
             const Combined& tensors, RunParts run);

}  // namespace convgrad

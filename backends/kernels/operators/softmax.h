// Functions that compute a row of a softmax, of its exponentials or of its
// gradient.
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace convgrad {

// The length of a row of logits is a multiple of this; -Inf fills the rest.
inline constexpr size_t kSoftmaxLanes = 8;

struct SoftmaxSums {
  double largest;  // of the logits
  double sum;      // of the exponentials
};

// Replaces each logit x by e^(x - largest) with a relative error of at most
// 2^-51; subnormal results may become 0. The sum is NaN if a logit is NaN or
// Inf, or if all are -Inf. Requires: a multiple of kSoftmaxLanes. Thread-safe.
SoftmaxSums Exponentiate(absl::Span<double> logits);

// Write the softmax of a row of logits to `y`, which may be the row: NaN if a
// logit is NaN or +Inf, or if all are -Inf. Thread-safe.
// In f64, rounded once. Requires: `scratch` has as many elements as the row.
void Softmax(absl::Span<const float> x, absl::Span<double> scratch, float* y);
// In f32, with a relative error of at most 2^-16 where the result is a normal
// number, for results that are rounded to bf16.
void SoftmaxInF32(absl::Span<const float> x, float* y);

// Writes the gradients of a softmax's operand, from its results y and their
// gradients dy: y * (dy - sum(y * dy)), computed in f64 and rounded once. `dx`
// may be `y` or `dy`. Thread-safe.
void SoftmaxGradient(absl::Span<const float> y, const float* dy, float* dx);

}  // namespace convgrad

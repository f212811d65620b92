// `Exponentiate` and `SoftmaxGradient` compute rows of a softmax and of its
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

// Replaces the gradients dy of the softmax's results y by those of its operand,
// y * (dy - sum(y * dy)), computed in f64 and rounded once. Requires: equal
// sizes. Thread-safe.
void SoftmaxGradient(absl::Span<const float> y, absl::Span<float> dy);

}  // namespace convgrad

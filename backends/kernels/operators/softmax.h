// The exponentials of a softmax.
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace convgrad {

// Logits come in rows of a multiple of this many, filled up with -Inf.
inline constexpr size_t kSoftmaxLanes = 8;

struct SoftmaxSums {
  double largest;  // of the logits
  double sum;      // of the exponentials
};

// Replaces each logit x by e^(x - largest), whose relative error is at most
// 2^-51; what is subnormal may be 0. The sum is NaN where a logit is NaN or
// Inf, or all are -Inf. Requires: a multiple of kSoftmaxLanes. Thread-safe.
SoftmaxSums Exponentiate(absl::Span<double> logits);

}  // namespace convgrad

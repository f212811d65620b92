// `ErrorBound` computes the error that proto/correctness.md, "Single results",
// allows.
#pragma once

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Returns the number of products summed per element of `which`: the contract's
// K.
double ProductsPerElement(const ConvProblem& problem, Result which);

// Computes the element-wise criterion on real numbers for one result. Value
// type.
class ErrorBound {
 public:
  ErrorBound(const ConvOperation& operation, const ResultRequest& result);

  // Returns the allowed error for `ref`, the float64 result before scale and
  // rounding. `spread` is the same operation on absolute values (S). For
  // independent zero-mean operands it is the larger of |ref| and the root of
  // the operation on squares.
  double Allowed(double ref, double spread) const;

  // Returns the error of `found`, a stored element, relative to the allowed
  // error; a correct element gives at most 1. Inf if no error is allowed but
  // there is one. A `found` of Inf is correct if the result's dtype may round
  // to it; Inf and NaN are correct if f32 sums may overflow. If `ref` isn't
  // finite, `found` must not be finite either.
  double Share(double found, double ref, double spread) const;

 private:
  const double scale_;
  const double rounding_;       // relative to |ref|
  const double accumulation_;   // relative to the spread
  const double smallest_step_;  // errors below this are allowed
  const double overflow_;       // from here on the dtype rounds to Inf
};

}  // namespace convgrad

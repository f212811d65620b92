// The error that proto/correctness.md, "Single results", allows a result.
#pragma once

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Returns the products summed per element of `which`: the contract's K.
double ProductsPerElement(const ConvProblem& problem, Result which);

// The element-wise criterion on real numbers for one result. Value type.
class ErrorBound {
 public:
  ErrorBound(const ConvOperation& operation, const ResultRequest& result);

  // Returns the error allowed where the float64 result, before scale and
  // rounding, is `ref`. `spread` is the same operation on absolute values (S);
  // for independent zero-mean operands the larger of |ref| and the root of the
  // operation on squares.
  double Allowed(double ref, double spread) const;

  // Returns the error of `found`, an element as it is stored, in units of what
  // is allowed: right up to 1. Inf where none is allowed but there is one.
  // Found Inf is right where the result's dtype may round to it, found Inf or
  // NaN where f32 sums may overflow. A ref that isn't finite asks for a found
  // that isn't either.
  double Share(double found, double ref, double spread) const;

 private:
  const double scale_;
  const double rounding_;       // share of |ref|
  const double accumulation_;   // share of the spread
  const double smallest_step_;  // below this any error is allowed
  const double overflow_;       // from here on the dtype rounds to Inf
};

}  // namespace convgrad

// The tensors of a self-check, and its parts that compare element by element:
// the functions named ...Error return the largest error of an element relative
// to the error that the contract allows (ErrorBound). A correct result gives at
// most 1.
#pragma once

#include "absl/types/span.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// A tensor in f32, row-major in logical order.
struct CanonicalTensor {
  TensorDescriptor descriptor;
  float* data = nullptr;

  int64_t count() const { return ElementCount(descriptor); }
};

// Returns the descriptor of `tensor` as a CanonicalTensor.
TensorDescriptor CanonicalOf(const TensorDescriptor& tensor);

// Reads `data`, which `tensor` describes. Requires: to.descriptor is
// CanonicalOf(tensor).
void LoadCanonical(const TensorDescriptor& tensor, const void* data,
                   const CanonicalTensor& to);

// Returns the sum of the absolute values of `count` elements.
double SumOfAbsolutes(const float* data, int64_t count);

// Sums of the products of two tensors, and of their absolute values.
struct Products {
  double sum = 0;
  double absolute = 0;
};

// Requires: as many elements of `a` as of `b`.
Products Dot(const CanonicalTensor& a, const CanonicalTensor& b);

// A result that an operation's Run has written. Value type.
struct FoundResult {
  const ConvOperation* operation;
  const ResultRequest* request;
  const void* data;
};

// Compares grad_bias with sums of g in double. If a sum isn't finite, the
// element must not be finite either. `g` is grad_output after the mask of a
// fused ReLU (proto/single_calls.md, "Results"). `sums` has two numbers for
// each element of grad_bias; their values don't matter.
double GradBiasError(const FoundResult& found, const CanonicalTensor& g,
                     absl::Span<double> sums);

// Compares grad_residual with g, which is masked. Allows one rounding. `space`
// has the shape of g and is overwritten.
double GradResidualError(const FoundResult& found, const CanonicalTensor& g,
                         const CanonicalTensor& space);

// The values with which an output is compared.
struct ExpectedOutput {
  CanonicalTensor sum;     // conv(x, w), computed in f32
  CanonicalTensor spread;  // conv(|x|, |w|), likewise
  bool finite_operands;    // x and w hold neither Inf nor NaN

  // Add a bias or a residual to the sum, and its absolute value to the spread.
  // Requires: a bias of the problem; a tensor of the output's dims.
  void AddBias(const ConvProblem& problem, const CanonicalTensor& bias) const;
  void AddResidual(const CanonicalTensor& residual) const;
};

// Compares an output with scale * relu(sum). Both sides are sums in f32, so
// this allows twice the contract's accumulation error:
//     scale * (1.01 * u_out * |relu(sum)| + 8 * sqrt(K+2) * 2^-24 * spread)
//         + smallest subnormal.
// Ignores elements whose sum isn't finite. If an operand isn't finite, it also
// ignores elements that aren't finite, because a kernel may multiply the
// operand by padding. `space` has the output's dims and is overwritten.
double OutputError(const FoundResult& found, const ExpectedOutput& expected,
                   const CanonicalTensor& space);

}  // namespace convgrad

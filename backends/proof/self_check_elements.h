// The parts of a self-check that compare element by element: what a convolution
// has around its sums of products. Each function returns the largest error of
// an element in units of what the contract allows (ErrorBound): right up to 1.
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

// A result as an operation's Run left it. Value type.
struct FoundResult {
  const ConvOperation* operation;
  const ResultRequest* request;
  const void* data;
};

// Compares grad_bias with sums of g in double, an element whose sum isn't
// finite with any that isn't. g is masked. `sums` holds two numbers for each
// element of grad_bias and needs no value.
double GradBiasError(const FoundResult& found, const CanonicalTensor& g,
                     absl::Span<double> sums);

// Compares grad_residual with g, which is masked: one rounding is allowed.
// `space` has the shape of g, and loses its values.
double GradResidualError(const FoundResult& found, const CanonicalTensor& g,
                         const CanonicalTensor& space);

// What an output is compared with.
struct ExpectedOutput {
  CanonicalTensor sum;     // conv(x, w), computed in f32
  CanonicalTensor spread;  // conv(|x|, |w|), likewise
  bool finite_operands;    // x and w hold neither Inf nor NaN

  // Adds a bias or a residual: itself to the sum, its absolute value to the
  // spread. Requires: a bias of the problem; a tensor of the output's dims.
  void AddBias(const ConvProblem& problem, const CanonicalTensor& bias) const;
  void AddResidual(const CanonicalTensor& residual) const;
};

// Compares an output with scale * relu(sum). Both sides were summed in f32, so
// that twice the contract's accumulation error is allowed:
//     scale * (1.01 * u_out * |relu(sum)| + 8 * sqrt(K+2) * 2^-24 * spread)
//         + smallest subnormal.
// An element whose sum isn't finite says nothing, nor does one that isn't
// finite itself where an operand isn't: a kernel may multiply that by padding.
// `space` has the output's dims, and loses its values.
double OutputError(const FoundResult& found, const ExpectedOutput& expected,
                   const CanonicalTensor& space);

}  // namespace convgrad

// The bias gradient: grad_output summed over the axes along which the bias was
// broadcast. Needs nothing of the library.
#pragma once

#include "backends/core/convolution/conv_operation.h"

namespace convgrad::onednn {

// Sums a tensor into the dims of a bias. Immutable; thread-safe.
class BiasReduction {
 public:
  // `bias` has grad's rank, each axis 1 or grad's. Requires: grad row-major.
  BiasReduction(TensorDescriptor grad, Dims bias, int threads);

  // Bytes of scratch that Run needs: sums are kept in f64.
  int64_t scratch_bytes() const;

  // Writes scale * sum, rounded once to `dtype`, row-major in bias's dims. The
  // order of summation depends on dims, layout and thread count only.
  void Run(const void* grad, float scale, DataType dtype, void* result,
           void* scratch) const;

 private:
  TensorDescriptor grad_;
  Dims bias_;
  int threads_;
  int64_t bias_count_;
  int parts_;
};

}  // namespace convgrad::onednn

// `BiasReduction` computes the bias gradient: it sums grad_output over the axes
// along which the bias was broadcast. Doesn't use the library.
#pragma once

#include "backends/core/convolution/conv_operation.h"

namespace convgrad::onednn {

// Immutable; thread-safe.
class BiasReduction {
 public:
  // `bias` has grad's rank; each of its axes is 1 or grad's extent. Requires:
  // grad row-major.
  BiasReduction(TensorDescriptor grad, Dims bias, int threads);

  // Returns the bytes of scratch that Run needs for sums in f64.
  int64_t scratch_bytes() const;

  // Writes scale * sum, rounded once to `dtype`, row-major in bias's dims. The
  // order of summation depends only on dims, layout and the number of threads.
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

// `BiasReduction` computes the bias gradient: it sums grad_output over the axes
// along which the bias was broadcast. Doesn't use the library.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/copies/strided_copy.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad::onednn {

// Immutable; thread-safe.
class BiasReduction {
 public:
  // `bias` has grad's rank; each of its axes is 1 or grad's extent. Requires:
  // grad row-major and not empty.
  BiasReduction(const TensorDescriptor& grad, const Dims& bias);

  // Returns the bytes of scratch that Run needs for sums in f64.
  int64_t scratch_bytes() const;

  // Writes scale * sum, rounded once to `dtype`, row-major in bias's dims. The
  // order of summation depends only on dims and layout.
  void Run(const void* grad, float scale, DataType dtype, void* result,
           void* scratch, RunParts run) const;

 private:
  // What SumTerms sums. Each of its channels is one index along the other axes
  // of grad.
  ChannelBlocks inner_;
  // Loops over these channels: along axes of the bias, whose strides are the
  // destination's, and along axes that are still to be summed.
  StridedLoops kept_, summed_;
};

}  // namespace convgrad::onednn

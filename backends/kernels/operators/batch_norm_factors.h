// Computes the numbers with which a kernel applies a batch_norm to each
// channel.
#pragma once

#include "backends/kernels/operators/batch_norm.h"
#include "backends/kernels/operators/channel_scale.h"

namespace convgrad {

// Writes center, scale and shift of the forward, in f32, to 3 *
// padded_channels() floats, and returns pointers to them. The kernel subtracts
// the center before it multiplies, so that a mean far from zero costs no
// precision. The shift includes the center's rounding error.
ChannelScale ForwardFactors(const BatchNorm& norm, float* numbers);

// dx = scale * dy + slope * (down * (x - center)) + shift. `down` is a power of
// two near 1 / the deviation, because the product of slope and down may be too
// small for a float.
struct GradientFactors {
  const float* scale;
  const float* slope;
  const float* down;
  const float* center;
  const float* shift;
};
// Does the same for the input's gradient, with 5 * padded_channels() floats.
// Slope and shift are zero unless `norm.training`.
GradientFactors InputGradientFactors(const BatchNorm& norm,
                                     const BatchNormSums& sums, float* numbers);

}  // namespace convgrad

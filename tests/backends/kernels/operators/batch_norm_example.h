// `Example` is a batch_norm on random operands, with the bounds of its results'
// errors.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "backends/kernels/operators/batch_norm.h"
#include "tests/backends/kernels/operators/channel_tensors.h"

namespace convgrad {

// A batch_norm with operands, scratch and moments.
struct Example {
  explicit Example(const ChannelBlocks& blocks, double center = 0.5)
      : x(Random(blocks, 1, center, 2)),
        addend(Random(blocks, 2)),
        dy(Random(blocks, 3)),
        mean(blocks.padded_channels()),
        variance(blocks.padded_channels()),
        sum_dy_xhat(blocks.padded_channels(), NAN),
        sum_dy(blocks.padded_channels(), NAN),
        scratch(BatchNormScratch(blocks), NAN) {
    for (int64_t c = 0; c < blocks.channels; ++c) {
      gamma.push_back(static_cast<float>(1 + c % 3));
      beta.push_back(static_cast<float>(c % 5 - 2));
    }
    norm = {.blocks = blocks,
            .gamma = gamma.data(),
            .beta = beta.data(),
            .mean = mean.data(),
            .variance = variance.data(),
            .scratch = scratch.data()};
    Measure();
  }

  // Computes the moments by plain loops.
  void Measure() {
    const ChannelBlocks& blocks = x.blocks();
    const auto count = static_cast<double>(blocks.batch * blocks.spatial);
    for (double& value : mean) value = 0;
    for (double& value : variance) value = 0;
    x.ForEach([&](int64_t n, int64_t c, int64_t s) {
      mean[c] += x.At(n, c, s) / count;
    });
    x.ForEach([&](int64_t n, int64_t c, int64_t s) {
      variance[c] += std::pow(x.At(n, c, s) - mean[c], 2) / count;
    });
  }

  double InverseDeviation(int64_t c) const {
    return 1 / std::sqrt(variance[c] + norm.epsilon);
  }
  double Xhat(int64_t n, int64_t c, int64_t s) const {
    return (x.At(n, c, s) - mean[c]) * InverseDeviation(c);
  }

  ChannelTensor x, addend, dy;
  std::vector<double> mean, variance, sum_dy_xhat, sum_dy, scratch;
  std::vector<float> gamma, beta;
  BatchNorm norm;
};

// Returns the bound of one rounding to the dtype and a few roundings in f32 of
// terms of this size.
inline double Tolerance(DataType dtype, double result, double terms) {
  return UnitRoundoff(dtype) * std::abs(result) +
         4 * UnitRoundoff(DataType::kF32) * terms;
}

}  // namespace convgrad

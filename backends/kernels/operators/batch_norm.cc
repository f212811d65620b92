#include "backends/kernels/operators/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "backends/kernels/operators/batch_norm_factors.h"
#include "backends/kernels/operators/channel_rows.h"
#include "backends/kernels/operators/channel_sums.h"

namespace convgrad {
namespace {

double InverseDeviation(const BatchNorm& norm, int64_t channel) {
  return 1 / std::sqrt(norm.variance[channel] + norm.epsilon);
}

double GammaOf(const BatchNorm& norm, int64_t channel) {
  return norm.gamma == nullptr ? 1 : norm.gamma[channel];
}

// Writes one element of each channel. Subtracting it before squaring makes the
// variance exact to double's rounding, however far the mean is from zero.
void FirstElements(const ChannelBlocks& blocks, const void* x, double* first) {
  const int64_t size = ByteSizeOf(blocks.dtype);
  for (int64_t c = 0; c < blocks.padded_channels(); ++c) {
    const int64_t at =
        c / blocks.block * blocks.spatial * blocks.block + c % blocks.block;
    const double value =
        LoadAsDouble(blocks.dtype, static_cast<const char*>(x) + at * size);
    first[c] = std::isfinite(value) ? value : 0;
  }
}

}  // namespace

int64_t BatchNormScratch(const ChannelBlocks& blocks) {
  // Both passes' factors take as much space as four doubles per channel, but
  // only three are free in the sums' scratch. So add one more.
  return std::max(SumScratch(blocks), blocks.padded_channels()) +
         3 * blocks.padded_channels();
}

void BatchNormStatistics(const ChannelBlocks& blocks, const void* x,
                         double* scratch, RunParts run, Moments moments) {
  const int64_t padded = blocks.padded_channels();
  std::fill_n(moments.mean, padded, 0.0);
  std::fill_n(moments.variance, padded, 0.0);
  if (blocks.size() == 0) return;
  double* first = scratch + SumScratch(blocks);
  FirstElements(blocks, x, first);
  SumTerms(blocks, {.a = x, .center = first}, scratch, run, moments.mean,
           moments.variance);
  const auto count = static_cast<double>(blocks.batch * blocks.spatial);
  for (int64_t c = 0; c < padded; ++c) {
    const double offset = moments.mean[c] / count;
    // Not negative: the first element differs by 0, so the variance is at least
    // offset^2 / count, which is far larger than the rounding error.
    moments.variance[c] = moments.variance[c] / count - offset * offset;
    moments.mean[c] = first[c] + offset;
  }
}

ChannelScale ForwardFactors(const BatchNorm& norm, float* numbers) {
  const int64_t padded = norm.blocks.padded_channels();
  std::fill_n(numbers, 3 * padded, 0.0f);
  float* scale = numbers + padded;
  float* shift = scale + padded;
  for (int64_t c = 0; c < norm.blocks.channels; ++c) {
    const double factor = GammaOf(norm, c) * InverseDeviation(norm, c);
    const double beta = norm.beta == nullptr ? 0 : norm.beta[c];
    numbers[c] = static_cast<float>(norm.mean[c]);
    scale[c] = static_cast<float>(factor);
    shift[c] = static_cast<float>(beta - (norm.mean[c] - numbers[c]) * factor);
  }
  return {numbers, scale, shift};
}

void FoldNorm(const BatchNorm& norm, const float* bias, float* scale,
              float* shift) {
  for (int64_t c = 0; c < norm.blocks.channels; ++c) {
    const double factor = GammaOf(norm, c) * InverseDeviation(norm, c);
    const double beta = norm.beta == nullptr ? 0 : norm.beta[c];
    const double center = norm.mean[c] - (bias == nullptr ? 0 : bias[c]);
    scale[c] = static_cast<float>(factor);
    shift[c] = static_cast<float>(beta - center * factor);
  }
}

void RunForward(const BatchNorm& norm, const BatchNormForward& tensors,
                RunParts run) {
  const ChannelScale numbers =
      ForwardFactors(norm, reinterpret_cast<float*>(norm.scratch));
  ScaleChannels(norm.blocks, numbers,
                {.x = tensors.x,
                 .addend = tensors.addend,
                 .activation = tensors.activation,
                 .y = tensors.y},
                run);
}

void RunGradientSums(const BatchNorm& norm,
                     const BatchNormGradientSums& tensors, RunParts run,
                     BatchNormSums sums) {
  const ChannelBlocks& blocks = norm.blocks;
  const int64_t padded = blocks.padded_channels();
  double* center = norm.scratch + SumScratch(blocks);
  std::fill_n(center, padded, 0.0);
  std::copy_n(norm.mean, blocks.channels, center);
  const ChannelScale forward =
      ForwardFactors(norm, reinterpret_cast<float*>(center + padded));
  SumTerms(blocks,
           {.a = tensors.dy,
            .b = tensors.x,
            .center = center,
            .numbers = &forward,
            .activation = tensors.activation,
            .mask = tensors.y,
            .more = tensors.more_dy,
            .masked = tensors.masked_dy},
           norm.scratch, run, sums.dy, sums.dy_xhat);
  for (int64_t c = 0; c < blocks.channels; ++c) {
    sums.dy_xhat[c] *= InverseDeviation(norm, c);
  }
}

GradientFactors InputGradientFactors(const BatchNorm& norm,
                                     const BatchNormSums& sums,
                                     float* numbers) {
  const ChannelBlocks& blocks = norm.blocks;
  const int64_t padded = blocks.padded_channels();
  std::fill_n(numbers, 5 * padded, 0.0f);
  float* slope = numbers + padded;
  float* down = slope + padded;
  float* center = down + padded;
  float* shift = center + padded;
  const auto count = static_cast<double>(blocks.batch * blocks.spatial);
  for (int64_t c = 0; c < blocks.channels; ++c) {
    const double inverse = InverseDeviation(norm, c);
    const double scale = GammaOf(norm, c) * inverse;
    numbers[c] = static_cast<float>(scale);
    if (!norm.training) continue;
    const double weight = norm.has_weighted_sums ? inverse : scale;
    const double tilt = -weight * inverse * sums.dy_xhat[c] / count;
    const double power =
        std::exp2(std::clamp(std::floor(std::log2(inverse)), -126.0, 126.0));
    center[c] = static_cast<float>(norm.mean[c]);
    down[c] = static_cast<float>(power);
    slope[c] = static_cast<float>(tilt / power);
    shift[c] = static_cast<float>(-weight * sums.dy[c] / count -
                                  tilt * (norm.mean[c] - center[c]));
  }
  return {numbers, slope, down, center, shift};
}

}  // namespace convgrad

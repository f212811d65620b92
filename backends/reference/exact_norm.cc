// Computes batch_norm and normalize.
#include <cmath>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Positions of batch_norm's operands.
enum Position { kX, kWeight, kBias, kRunningMean, kRunningVar, kTracked };

// The mean and the variance of each channel.
struct Moments {
  Values mean;
  Values variance;  // biased
};

Moments BatchMoments(const StepData& data) {
  const ChannelView view(data.dims(kX));
  const auto x = data.operands[kX];
  const auto count = static_cast<double>(view.batch * view.positions);
  Moments moments{Values(view.channels), Values(view.channels)};
  for (size_t i = 0; i < x.size(); ++i) moments.mean[view.ChannelOf(i)] += x[i];
  for (double& mean : moments.mean) mean /= count;
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t c = view.ChannelOf(i);
    const double distance = x[i] - moments.mean[c];
    moments.variance[c] += distance * distance;
  }
  for (double& variance : moments.variance) variance /= count;
  data.WriteIntermediate(&moments.mean);
  data.WriteIntermediate(&moments.variance);
  return moments;
}

Moments MomentsOf(const StepData& data) {
  if (IsTraining(*data.step)) return BatchMoments(data);
  const auto mean = data.operands[kRunningMean];
  const auto variance = data.operands[kRunningVar];
  return {{mean.begin(), mean.end()}, {variance.begin(), variance.end()}};
}

Values InverseDeviations(const StepData& data, const Moments& moments) {
  const double eps = FloatAttribute(*data.step, "eps");
  Values inverse;
  for (const double variance : moments.variance) {
    inverse.push_back(1 / std::sqrt(variance + eps));
  }
  return inverse;
}

// Returns (x - mean) / deviation.
Values NormalsOf(const StepData& data, const Moments& moments,
                 const Values& inverse) {
  const ChannelView view(data.dims(kX));
  const auto x = data.operands[kX];
  Values normals(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t c = view.ChannelOf(i);
    normals[i] = (x[i] - moments.mean[c]) * inverse[c];
  }
  data.WriteIntermediate(&normals);
  return normals;
}

Values BatchNormForward(const StepData& data) {
  const ChannelView view(data.dims(kX));
  const Moments moments = MomentsOf(data);
  Values y = NormalsOf(data, moments, InverseDeviations(data, moments));
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t c = view.ChannelOf(i);
    if (data.Has(kWeight)) y[i] *= data.operands[kWeight][c];
    if (data.Has(kBias)) y[i] += data.operands[kBias][c];
  }
  return y;
}

StepGradients BatchNormBackward(const StepData& data,
                                absl::Span<const double> gradient) {
  const ChannelView view(data.dims(kX));
  const Moments moments = MomentsOf(data);
  const Values inverse = InverseDeviations(data, moments);
  const Values normals = NormalsOf(data, moments, inverse);
  // Sums over each channel, which are also the gradients of bias and weight.
  Values sums(view.channels), products(view.channels);
  for (size_t i = 0; i < normals.size(); ++i) {
    const int64_t c = view.ChannelOf(i);
    sums[c] += gradient[i];
    products[c] += gradient[i] * normals[i];
  }
  data.WriteIntermediate(&sums);
  data.WriteIntermediate(&products);
  StepGradients gradients(data.operands.size());
  if (data.Wants(kX)) {
    const bool is_training = IsTraining(*data.step);
    const auto count = static_cast<double>(view.batch * view.positions);
    for (size_t i = 0; i < normals.size(); ++i) {
      const int64_t c = view.ChannelOf(i);
      double centred = gradient[i];
      if (is_training) centred -= (sums[c] + normals[i] * products[c]) / count;
      const double weight = data.Has(kWeight) ? data.operands[kWeight][c] : 1;
      gradients[kX].push_back(centred * inverse[c] * weight);
    }
  }
  if (data.Wants(kWeight)) gradients[kWeight] = products;
  if (data.Wants(kBias)) gradients[kBias] = sums;
  return gradients;
}

StepGradients UpdatedStatisticsOf(const StepData& data) {
  StepGradients updated(data.operands.size());
  if (!data.Has(kRunningMean)) return updated;
  const ChannelView view(data.dims(kX));
  const Moments moments = BatchMoments(data);
  const auto count = static_cast<double>(view.batch * view.positions);
  double momentum = FloatAttribute(*data.step, "momentum");
  if (data.Has(kTracked)) {
    const double tracked = data.operands[kTracked][0] + 1;
    updated[kTracked] = {tracked};
    const bool is_cumulative = WordAttribute(*data.step, "momentum") == "none";
    if (is_cumulative) momentum = 1 / tracked;
  }
  for (int64_t c = 0; c < view.channels; ++c) {
    const double mean = data.operands[kRunningMean][c];
    const double variance = data.operands[kRunningVar][c];
    const double unbiased = moments.variance[c] * count / (count - 1);
    updated[kRunningMean].push_back((1 - momentum) * mean +
                                    momentum * moments.mean[c]);
    updated[kRunningVar].push_back((1 - momentum) * variance +
                                   momentum * unbiased);
  }
  return updated;
}

Values NormalizeForward(const StepData& data) {
  const ChannelView view(data.dims(0));
  const Values mean = FloatsAttribute(*data.step, "mean");
  const Values deviation = FloatsAttribute(*data.step, "std");
  Values y;
  for (size_t i = 0; i < data.operands[0].size(); ++i) {
    const int64_t c = view.ChannelOf(i);
    y.push_back((data.operands[0][i] - mean[mean.size() == 1 ? 0 : c]) /
                deviation[deviation.size() == 1 ? 0 : c]);
  }
  return y;
}

StepGradients NormalizeBackward(const StepData& data,
                                absl::Span<const double> gradient) {
  const ChannelView view(data.dims(0));
  const Values deviation = FloatsAttribute(*data.step, "std");
  Values values;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const int64_t c = view.ChannelOf(i);
    values.push_back(gradient[i] / deviation[deviation.size() == 1 ? 0 : c]);
  }
  return {values};
}

}  // namespace

std::vector<ExactOperator> ExactNorms() {
  return {{.op = Operator::kBatchNorm,
           .forward = &BatchNormForward,
           .backward = &BatchNormBackward,
           .update = &UpdatedStatisticsOf},
          {Operator::kNormalize, &NormalizeForward, &NormalizeBackward}};
}

}  // namespace convgrad

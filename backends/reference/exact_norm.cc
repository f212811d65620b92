// Computes batch_norm, group_norm, layer_norm, rms_norm and normalize.
#include <cmath>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Positions of a norm's operands.
enum Position { kX, kWeight, kBias, kRunningMean, kRunningVar, kTracked };

// A norm's elements as rows, which are normalized separately. The rows of a
// batch_norm are its channels, those of a group_norm the groups of each image.
struct Norm {
  explicit Norm(const StepData& of) : data(of), x(of.operands[kX]) {
    const Dims& dims = data.dims(kX);
    if (op == Operator::kLayerNorm || op == Operator::kRmsNorm) {
      const int64_t axes = IntAttribute(*data.step, "axes");
      parameters = CountOf({dims.end() - axes, dims.end()});
      rows = CountOf(dims) / parameters;
    } else {
      parameters = dims[1];
      positions = ChannelView(dims).positions;
      rows = is_batch ? dims[1] : dims[0] * IntAttribute(*data.step, "groups");
    }
    length = CountOf(dims) / rows;
  }

  int64_t RowOf(int64_t element) const {
    return is_batch ? ParameterOf(element) : element / length;
  }
  // Returns the index of the parameter's number that belongs to an element.
  int64_t ParameterOf(int64_t element) const {
    return element / positions % parameters;
  }
  // Returns the sum of term(element) over each row.
  template <typename Term>
  Values Sums(const Term& term) const {
    Values sums(rows);
    for (int64_t i = 0; i < std::ssize(x); ++i) {
      sums[RowOf(i)] += term(i);
    }
    return sums;
  }
  template <typename Term>
  Values Means(const Term& term) const {
    Values means = Sums(term);
    for (double& mean : means) mean /= static_cast<double>(length);
    return means;
  }

  const StepData& data;
  const absl::Span<const double> x;
  const Operator op = data.step->op;
  const bool is_batch = op == Operator::kBatchNorm;
  int64_t rows;
  int64_t length;         // elements of a row
  int64_t parameters;     // numbers of a parameter
  int64_t positions = 1;  // contiguous elements that share a number
};

// Returns whether the mean and the variance are those of earlier runs.
bool IsFixed(const Norm& norm) {
  return norm.is_batch && !IsTraining(*norm.data.step);
}

// The mean, 0 of an rms_norm, and the biased variance of each row.
struct Moments {
  Values mean, variance;
};

Moments MomentsOf(const Norm& norm) {
  const StepData& data = norm.data;
  if (IsFixed(norm)) {
    const auto mean = data.operands[kRunningMean];
    const auto variance = data.operands[kRunningVar];
    return {{mean.begin(), mean.end()}, {variance.begin(), variance.end()}};
  }
  Moments moments;
  const bool is_centred = norm.op != Operator::kRmsNorm;
  moments.mean =
      norm.Means([&](int64_t i) { return is_centred ? norm.x[i] : 0; });
  moments.variance = norm.Means([&](int64_t i) {
    const double distance = norm.x[i] - moments.mean[norm.RowOf(i)];
    return distance * distance;
  });
  if (norm.is_batch) {
    data.WriteIntermediate(&moments.mean);
    data.WriteIntermediate(&moments.variance);
  }
  return moments;
}

// The elements minus the mean, divided by the deviation.
struct Normals {
  Values inverse;  // 1 / deviation, by row
  Values values;   // by element
};

Normals NormalsOf(const Norm& norm) {
  const Moments moments = MomentsOf(norm);
  const double eps = FloatAttribute(*norm.data.step, "eps");
  Normals normals;
  for (const double variance : moments.variance) {
    normals.inverse.push_back(1 / std::sqrt(variance + eps));
  }
  if (!norm.is_batch) norm.data.WriteIntermediate(&normals.inverse);
  for (int64_t i = 0; i < std::ssize(norm.x); ++i) {
    const int64_t row = norm.RowOf(i);
    normals.values.push_back((norm.x[i] - moments.mean[row]) *
                             normals.inverse[row]);
  }
  norm.data.WriteIntermediate(&normals.values);
  return normals;
}

Values NormForward(const StepData& data) {
  const Norm norm(data);
  Values y = NormalsOf(norm).values;
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t at = norm.ParameterOf(i);
    if (data.Has(kWeight)) y[i] *= data.operands[kWeight][at];
    if (data.Has(kBias)) y[i] += data.operands[kBias][at];
  }
  return y;
}

StepGradients NormBackward(const StepData& data,
                           absl::Span<const double> gradient) {
  const Norm norm(data);
  const Normals normals = NormalsOf(norm);
  const auto weight_of = [&](int64_t i) {
    return data.Has(kWeight) ? data.operands[kWeight][norm.ParameterOf(i)] : 1;
  };
  Values of_weight(norm.parameters), of_bias(norm.parameters), weighted;
  for (int64_t i = 0; i < std::ssize(gradient); ++i) {
    of_weight[norm.ParameterOf(i)] += gradient[i] * normals.values[i];
    of_bias[norm.ParameterOf(i)] += gradient[i];
    // A batch_norm has one weight in a row, which is a factor of the row's
    // sums.
    weighted.push_back(gradient[i] * (norm.is_batch ? 1 : weight_of(i)));
  }
  Values sums, products;
  if (norm.is_batch) {
    data.WriteIntermediate(&of_bias);
    data.WriteIntermediate(&of_weight);
    sums = of_bias;
    products = of_weight;
  } else {
    data.WriteIntermediate(&weighted);
    sums = norm.Sums([&](int64_t i) { return weighted[i]; });
    products =
        norm.Sums([&](int64_t i) { return weighted[i] * normals.values[i]; });
  }
  if (norm.op == Operator::kRmsNorm) sums.assign(norm.rows, 0);
  StepGradients gradients(data.operands.size());
  for (int64_t i = 0; i < std::ssize(weighted); ++i) {
    const int64_t row = norm.RowOf(i);
    double centred = weighted[i];
    if (!IsFixed(norm)) {
      centred -= (sums[row] + normals.values[i] * products[row]) /
                 static_cast<double>(norm.length);
    }
    gradients[kX].push_back(centred * normals.inverse[row] *
                            (norm.is_batch ? weight_of(i) : 1));
  }
  if (data.Wants(kWeight)) gradients[kWeight] = of_weight;
  if (data.Wants(kBias)) gradients[kBias] = of_bias;
  return gradients;
}

StepGradients UpdatedStatisticsOf(const StepData& data) {
  StepGradients updated(data.operands.size());
  if (!data.Has(kRunningMean)) return updated;
  const Norm norm(data);
  const Moments moments = MomentsOf(norm);
  const auto count = static_cast<double>(norm.length);
  double momentum = FloatAttribute(*data.step, "momentum");
  if (data.Has(kTracked)) {
    const double tracked = data.operands[kTracked][0] + 1;
    updated[kTracked] = {tracked};
    const bool is_cumulative = WordAttribute(*data.step, "momentum") == "none";
    if (is_cumulative) momentum = 1 / tracked;
  }
  for (int64_t c = 0; c < norm.rows; ++c) {
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
           .forward = &NormForward,
           .backward = &NormBackward,
           .update = &UpdatedStatisticsOf},
          {Operator::kGroupNorm, &NormForward, &NormBackward},
          {Operator::kLayerNorm, &NormForward, &NormBackward},
          {Operator::kRmsNorm, &NormForward, &NormBackward},
          {Operator::kNormalize, &NormalizeForward, &NormalizeBackward}};
}

}  // namespace convgrad

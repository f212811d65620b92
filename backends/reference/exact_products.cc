// Computes matmul and attention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/core/program/operators/products.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Calls visit(y, a, b) with the offsets of each product of a matmul: of the
// result's element and of the two factors.
template <typename Visit>
void ForEachProduct(const StepData& data, const Visit& visit) {
  const Dims& y = data.result_dims();
  const size_t rank = y.size();
  const int64_t depth = data.dims(0).back();
  Dims a_strides = BroadcastStrides(data.dims(0), y);
  Dims b_strides = BroadcastStrides(data.dims(1), y);
  // Of y's last two axes, a has only the rows, and b only the columns.
  a_strides[rank - 2] = depth;
  a_strides[rank - 1] = 0;
  b_strides[rank - 2] = 0;
  b_strides[rank - 1] = 1;
  std::vector<int64_t> b_first;
  ForEachIndex(y, b_strides, 0,
               [&](int64_t, int64_t at) { b_first.push_back(at); });
  ForEachIndex(y, a_strides, 0, [&](int64_t i, int64_t a) {
    for (int64_t k = 0; k < depth; ++k) {
      visit(i, a + k, b_first[i] + k * y.back());
    }
  });
}

Values MatmulForward(const StepData& data) {
  Values y(CountOf(data.result_dims()));
  ForEachProduct(data, [&](int64_t i, int64_t a, int64_t b) {
    y[i] += data.operands[0][a] * data.operands[1][b];
  });
  return y;
}

StepGradients MatmulBackward(const StepData& data,
                             absl::Span<const double> gradient) {
  StepGradients gradients = {Values(data.operands[0].size()),
                             Values(data.operands[1].size())};
  ForEachProduct(data, [&](int64_t i, int64_t a, int64_t b) {
    gradients[0][a] += gradient[i] * data.operands[1][b];
    gradients[1][b] += gradient[i] * data.operands[0][a];
  });
  return gradients;
}

// Positions of attention's operands.
enum Position { kQuery, kKey, kValue, kMask };

// The keys and values that one query sees.
class QueryRow {
 public:
  QueryRow(const StepData& data, int64_t row)
      : data_(data), problem_(AttentionOf(*data.step, *data.shapes)) {
    matrix_ = row / problem_.queries;
    query_ = row * problem_.features;
    seen_ = problem_.causal
                ? std::min(row % problem_.queries + 1, problem_.keys)
                : problem_.keys;
  }

  int64_t KeyAt(int64_t i) const {
    return (matrix_ * problem_.keys + i) * problem_.features;
  }
  int64_t ValueAt(int64_t i) const {
    return (matrix_ * problem_.keys + i) * problem_.out_features;
  }
  int64_t query() const { return query_; }
  int64_t seen() const { return seen_; }
  const AttentionProblem& problem() const { return problem_; }

  // Returns the weight of each visible key: 0 if the mask hides all of them.
  // `mask` has the mask's element for each key.
  Values Weights(absl::Span<const int64_t> mask) const {
    Values weights;
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    double largest = kHidden, sum = 0;
    for (int64_t i = 0; i < seen_; ++i) {
      double score = 0;
      for (int64_t j = 0; j < problem_.features; ++j) {
        score += data_.operands[kQuery][query_ + j] *
                 data_.operands[kKey][KeyAt(i) + j];
      }
      score *= problem_.scale;
      if (data_.Has(kMask)) score += data_.operands[kMask][mask[i]];
      weights.push_back(score);
    }
    data_.WriteIntermediate(&weights);
    if (std::all_of(weights.begin(), weights.end(),
                    [](double score) { return score == kHidden; })) {
      return Values(weights.size());
    }
    for (const double score : weights) largest = std::max(largest, score);
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (double& weight : weights) weight /= sum;
    data_.WriteIntermediate(&weights);
    return weights;
  }

 private:
  const StepData& data_;
  const AttentionProblem problem_;
  int64_t matrix_, query_, seen_;
};

// Returns the mask's element for each query and each of its keys.
std::vector<int64_t> MaskElements(const StepData& data) {
  if (!data.Has(kMask)) return {};
  Dims scores = data.dims(kQuery);
  scores.back() = data.dims(kKey)[scores.size() - 2];
  return BroadcastOffsets(data.dims(kMask), scores);
}

// Calls visit(row, query, mask) for each query.
template <typename Visit>
void ForEachQuery(const StepData& data, const Visit& visit) {
  const std::vector<int64_t> elements = MaskElements(data);
  const AttentionProblem problem = AttentionOf(*data.step, *data.shapes);
  for (int64_t row = 0; row < problem.batch * problem.queries; ++row) {
    const auto mask = elements.empty() ? absl::Span<const int64_t>()
                                       : absl::MakeSpan(elements).subspan(
                                             row * problem.keys, problem.keys);
    visit(row, QueryRow(data, row), mask);
  }
}

Values AttentionForward(const StepData& data) {
  Values y(CountOf(data.result_dims()));
  ForEachQuery(data, [&](int64_t row, const QueryRow& query,
                         absl::Span<const int64_t> mask) {
    const Values weights = query.Weights(mask);
    const int64_t columns = query.problem().out_features;
    for (int64_t i = 0; i < query.seen(); ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        y[row * columns + j] +=
            weights[i] * data.operands[kValue][query.ValueAt(i) + j];
      }
    }
  });
  return y;
}

StepGradients AttentionBackward(const StepData& data,
                                absl::Span<const double> gradient) {
  StepGradients gradients;
  for (const auto operand : data.operands) {
    gradients.emplace_back(operand.size());
  }
  ForEachQuery(data, [&](int64_t row, const QueryRow& query,
                         absl::Span<const int64_t> mask) {
    const AttentionProblem& problem = query.problem();
    const Values weights = query.Weights(mask);
    const auto dy =
        gradient.subspan(row * problem.out_features, problem.out_features);
    Values steepness(weights.size());  // d loss / d weight
    double mean = 0;
    for (int64_t i = 0; i < query.seen(); ++i) {
      for (int64_t j = 0; j < problem.out_features; ++j) {
        const int64_t at = query.ValueAt(i) + j;
        gradients[kValue][at] += weights[i] * dy[j];
        steepness[i] += dy[j] * data.operands[kValue][at];
      }
      mean += weights[i] * steepness[i];
    }
    data.WriteIntermediate(&steepness);
    for (int64_t i = 0; i < query.seen(); ++i) {
      const double score = weights[i] * (steepness[i] - mean);
      if (data.Has(kMask)) gradients[kMask][mask[i]] += score;
      for (int64_t j = 0; j < problem.features; ++j) {
        const int64_t q = query.query() + j, k = query.KeyAt(i) + j;
        gradients[kQuery][q] += score * problem.scale * data.operands[kKey][k];
        gradients[kKey][k] += score * problem.scale * data.operands[kQuery][q];
      }
    }
  });
  return gradients;
}

}  // namespace

std::vector<ExactOperator> ExactProducts() {
  return {{Operator::kMatmul, &MatmulForward, &MatmulBackward},
          {Operator::kAttention, &AttentionForward, &AttentionBackward}};
}

}  // namespace convgrad

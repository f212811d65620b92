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
  StepGradients gradients = ZeroGradients(data);
  ForEachProduct(data, [&](int64_t i, int64_t a, int64_t b) {
    gradients[0][a] += gradient[i] * data.operands[1][b];
    gradients[1][b] += gradient[i] * data.operands[0][a];
  });
  return gradients;
}

// Positions of attention's operands.
enum Position { kQuery, kKey, kValue, kMask };

// The keys and values that one query sees.
struct QueryRow {
  int64_t query() const { return row * problem.features; }
  int64_t seen() const {
    return problem.causal ? std::min(row % problem.queries + 1, problem.keys)
                          : problem.keys;
  }
  int64_t KeyAt(int64_t i) const {
    return (row / problem.queries * problem.keys + i) * problem.features;
  }
  int64_t ValueAt(int64_t i) const {
    return (row / problem.queries * problem.keys + i) * problem.out_features;
  }

  // Returns the weight of each visible key: 0 if the mask hides all of them.
  Values Weights() const {
    Values weights;
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    double largest = kHidden, sum = 0;
    for (int64_t i = 0; i < seen(); ++i) {
      double score = 0;
      for (int64_t j = 0; j < problem.features; ++j) {
        score += data.operands[kQuery][query() + j] *
                 data.operands[kKey][KeyAt(i) + j];
      }
      score *= problem.scale;
      if (data.Has(kMask)) score += data.operands[kMask][mask[i]];
      weights.push_back(score);
    }
    data.WriteIntermediate(&weights);
    if (std::all_of(weights.begin(), weights.end(),
                    [](double score) { return score == kHidden; })) {
      return Values(weights.size());
    }
    for (const double score : weights) largest = std::max(largest, score);
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (double& weight : weights) weight /= sum;
    data.WriteIntermediate(&weights);
    return weights;
  }

  const StepData& data;
  const AttentionProblem& problem;
  int64_t row;
  // The mask's element for each key; empty without a mask.
  absl::Span<const int64_t> mask;
};

// Returns the mask's element for each query and each of its keys.
std::vector<int64_t> MaskElements(const StepData& data) {
  if (!data.Has(kMask)) return {};
  Dims scores = data.dims(kQuery);
  scores.back() = data.dims(kKey)[scores.size() - 2];
  return BroadcastOffsets(data.dims(kMask), scores);
}

// Calls visit(QueryRow) for each query.
template <typename Visit>
void ForEachQuery(const StepData& data, const Visit& visit) {
  const std::vector<int64_t> elements = MaskElements(data);
  const AttentionProblem problem = AttentionOf(*data.step, *data.shapes);
  for (int64_t row = 0; row < problem.batch * problem.queries; ++row) {
    const auto mask = elements.empty() ? absl::Span<const int64_t>()
                                       : absl::MakeSpan(elements).subspan(
                                             row * problem.keys, problem.keys);
    visit(QueryRow{data, problem, row, mask});
  }
}

Values AttentionForward(const StepData& data) {
  Values y(CountOf(data.result_dims()));
  ForEachQuery(data, [&](const QueryRow& query) {
    const Values weights = query.Weights();
    const int64_t columns = query.problem.out_features;
    for (int64_t i = 0; i < query.seen(); ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        y[query.row * columns + j] +=
            weights[i] * data.operands[kValue][query.ValueAt(i) + j];
      }
    }
  });
  return y;
}

StepGradients AttentionBackward(const StepData& data,
                                absl::Span<const double> gradient) {
  StepGradients gradients = ZeroGradients(data);
  ForEachQuery(data, [&](const QueryRow& query) {
    const AttentionProblem& problem = query.problem;
    const Values weights = query.Weights();
    const auto dy = gradient.subspan(query.row * problem.out_features,
                                     problem.out_features);
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
      if (data.Has(kMask)) gradients[kMask][query.mask[i]] += score;
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

// Computes sum, mean, amax, norm and var.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/core/program/operators/reductions.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// The groups of elements that a reduction combines; one per result element.
struct Groups {
  explicit Groups(const StepData& data)
      : x(data.operands[0]), op(data.step->op) {
    const Dims kept = ReducedAxesOf(*data.step, *data.shapes).kept;
    of = BroadcastOffsets(kept, data.dims(0));
    count = CountOf(kept);
    length = std::ssize(of) / count;
    const double correction =
        static_cast<double>(IntAttribute(*data.step, "correction"));
    freedom = static_cast<double>(length) - correction;
  }

  template <typename Term>
  Values Sums(const Term& term) const {
    Values sums(count);
    for (size_t i = 0; i < of.size(); ++i) sums[of[i]] += term(i);
    return sums;
  }
  Values Means() const {
    Values means = Sums([&](size_t i) { return x[i]; });
    for (double& mean : means) mean /= static_cast<double>(length);
    return means;
  }
  Values Maxima() const {
    Values maxima(count, -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < of.size(); ++i) {
      double& largest = maxima[of[i]];
      if (x[i] > largest || std::isnan(x[i])) largest = x[i];
    }
    return maxima;
  }

  const absl::Span<const double> x;
  const Operator op;
  std::vector<int64_t> of;  // the group of each element of the operand
  int64_t count = 0;
  int64_t length = 0;  // elements of a group
  double freedom = 0;  // the divisor of a var
};

Values Forward(const StepData& data) {
  const Groups groups(data);
  if (groups.op == Operator::kAmax) return groups.Maxima();
  const bool is_var = groups.op == Operator::kVar;
  const Values means = is_var ? groups.Means() : Values(groups.count);
  const bool is_square = is_var || groups.op == Operator::kNorm;
  Values y = groups.Sums([&](size_t i) {
    const double distance = groups.x[i] - means[groups.of[i]];
    return is_square ? distance * distance : groups.x[i];
  });
  // Once for each rounding of a sum of this many terms.
  for (int64_t i = 0; i < groups.length; ++i) data.WriteIntermediate(&y);
  for (double& value : y) {
    if (groups.op == Operator::kNorm) value = std::sqrt(value);
    if (is_var) value /= std::max(groups.freedom, 0.0);
    if (groups.op == Operator::kMean) {
      value /= static_cast<double>(groups.length);
    }
  }
  return y;
}

// Divides the gradient among equal maxima. A norm of 0 has the gradient 0.
StepGradients Backward(const StepData& data,
                       absl::Span<const double> gradient) {
  const Groups groups(data);
  const Values means = groups.Means(), maxima = groups.Maxima();
  const Values equal = groups.Sums(
      [&](size_t i) { return groups.x[i] == maxima[groups.of[i]] ? 1 : 0; });
  Values dx;
  for (size_t i = 0; i < groups.of.size(); ++i) {
    const int64_t at = groups.of[i];
    const double dy = gradient[at], x = groups.x[i];
    switch (groups.op) {
      case Operator::kAmax:
        dx.push_back(dy / equal[at] * (x == maxima[at] ? 1 : 0));
        break;
      case Operator::kNorm:
        dx.push_back(data.result[at] == 0 ? 0 : dy / data.result[at] * x);
        break;
      case Operator::kVar:
        dx.push_back(2 * dy / groups.freedom * (x - means[at]));
        break;
      case Operator::kMean:
        dx.push_back(dy / static_cast<double>(groups.length));
        break;
      default:
        dx.push_back(dy);
    }
  }
  return {dx};
}

}  // namespace

std::vector<ExactOperator> ExactReductions() {
  std::vector<ExactOperator> rows;
  for (const Operator op : {Operator::kMean, Operator::kSum, Operator::kAmax,
                            Operator::kNorm, Operator::kVar}) {
    rows.push_back({op, &Forward, &Backward});
  }
  return rows;
}

}  // namespace convgrad

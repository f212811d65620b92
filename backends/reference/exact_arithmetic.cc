// Computes arithmetic and comparisons of two operands, of which the second one
// may be broadcast or a constant, and choices by their results.
#include <cmath>

#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// The operands' elements of one element of the result, and its gradient.
struct Pair {
  double a, b;
  double gradient = 0;
};

// A constant in the place of b is rounded to `Constant` first.
template <double (*kFunction)(const Pair& at), typename Constant = double>
Values Forward(const StepData& data) {
  Values y;
  if (!data.Has(1)) {
    const auto other =
        static_cast<Constant>(FloatAttribute(*data.step, "other"));
    for (const double a : data.operands[0]) y.push_back(kFunction({a, other}));
    return y;
  }
  const auto indices = BroadcastOffsets(data.dims(1), data.result_dims());
  for (size_t i = 0; i < indices.size(); ++i) {
    y.push_back(kFunction({data.operands[0][i], data.operands[1][indices[i]]}));
  }
  return y;
}

template <double (*kOfA)(const Pair& at), double (*kOfB)(const Pair& at)>
StepGradients Backward(const StepData& data,
                       absl::Span<const double> gradient) {
  StepGradients gradients(data.operands.size());
  if (!data.Has(1)) {
    const double other = FloatAttribute(*data.step, "other");
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradients[0].push_back(kOfA({data.operands[0][i], other, gradient[i]}));
    }
    return gradients;
  }
  const auto indices = BroadcastOffsets(data.dims(1), data.result_dims());
  gradients[0].resize(data.operands[0].size());
  gradients[1].resize(data.operands[1].size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const Pair at = {data.operands[0][i], data.operands[1][indices[i]],
                     gradient[i]};
    gradients[0][i] = kOfA(at);
    gradients[1][indices[i]] += kOfB(at);
  }
  return gradients;
}

double Pass(const Pair& at) { return at.gradient; }
double Negated(const Pair& at) { return -at.gradient; }

double Sum(const Pair& at) { return at.a + at.b; }
double Difference(const Pair& at) { return at.a - at.b; }

double Product(const Pair& at) { return at.a * at.b; }
double TimesA(const Pair& at) { return at.gradient * at.a; }
double TimesB(const Pair& at) { return at.gradient * at.b; }

double Quotient(const Pair& at) { return at.a / at.b; }
double OverB(const Pair& at) { return at.gradient / at.b; }
double OfDivisor(const Pair& at) { return -at.gradient * (at.a / at.b / at.b); }

// Returns half of the gradient if the operands are equal.
double Shared(const Pair& at) {
  return at.a == at.b ? at.gradient / 2 : at.gradient;
}
double IfNotLess(const Pair& at) { return at.a < at.b ? 0 : Shared(at); }
double IfNotGreater(const Pair& at) { return at.a > at.b ? 0 : Shared(at); }
double Maximum(const Pair& at) {
  return at.a > at.b || std::isnan(at.a) ? at.a : at.b;
}
double Minimum(const Pair& at) {
  return at.a < at.b || std::isnan(at.a) ? at.a : at.b;
}

// Returns the prelu; b is the slope below 0.
double Prelu(const Pair& at) { return at.a > 0 ? at.a : at.a * at.b; }
double PreluOfA(const Pair& at) {
  return at.a > 0 ? at.gradient : at.gradient * at.b;
}
double PreluOfB(const Pair& at) { return at.a > 0 ? 0 : at.gradient * at.a; }

double NoGradient(const Pair& /*at*/) { return 0; }

double Equal(const Pair& at) { return at.a == at.b ? 1 : 0; }
double Less(const Pair& at) { return at.a < at.b ? 1 : 0; }
double LessEqual(const Pair& at) { return at.a <= at.b ? 1 : 0; }
double Greater(const Pair& at) { return at.a > at.b ? 1 : 0; }
double GreaterEqual(const Pair& at) { return at.a >= at.b ? 1 : 0; }

// Returns, for each element of the result, the index of an operand's element.
std::vector<int64_t> IndicesOf(size_t position, const StepData& data) {
  return BroadcastOffsets(data.dims(position), data.result_dims());
}

Values WhereForward(const StepData& data) {
  const auto condition = IndicesOf(0, data), a = IndicesOf(1, data);
  const bool has_b = data.Has(2);
  const auto b = has_b ? IndicesOf(2, data) : std::vector<int64_t>();
  const double other = has_b ? 0 : FloatAttribute(*data.step, "other");
  Values y;
  for (size_t i = 0; i < a.size(); ++i) {
    const double chosen = data.operands[0][condition[i]];
    if (std::isnan(chosen)) {
      y.push_back(chosen);
    } else if (chosen != 0) {
      y.push_back(data.operands[1][a[i]]);
    } else {
      y.push_back(has_b ? data.operands[2][b[i]] : other);
    }
  }
  return y;
}

StepGradients WhereBackward(const StepData& data,
                            absl::Span<const double> gradient) {
  StepGradients gradients(data.operands.size());
  gradients[0].resize(data.operands[0].size());
  const auto condition = IndicesOf(0, data);
  for (size_t position = 1; position < gradients.size(); ++position) {
    if (!data.Has(position)) continue;
    gradients[position].resize(data.operands[position].size());
    const auto indices = IndicesOf(position, data);
    for (size_t i = 0; i < gradient.size(); ++i) {
      const bool takes_a = data.operands[0][condition[i]] != 0;
      if (takes_a == (position == 1)) {
        gradients[position][indices[i]] += gradient[i];
      }
    }
  }
  return gradients;
}

}  // namespace

std::vector<ExactOperator> ExactArithmetic() {
  return {
      {Operator::kAdd, &Forward<Sum>, &Backward<Pass, Pass>},
      {Operator::kSub, &Forward<Difference>, &Backward<Pass, Negated>},
      {Operator::kMul, &Forward<Product>, &Backward<TimesB, TimesA>},
      {Operator::kDiv, &Forward<Quotient>, &Backward<OverB, OfDivisor>},
      {Operator::kMaximum, &Forward<Maximum>,
       &Backward<IfNotLess, IfNotGreater>},
      {Operator::kMinimum, &Forward<Minimum>,
       &Backward<IfNotGreater, IfNotLess>},
      {Operator::kPrelu, &Forward<Prelu>, &Backward<PreluOfA, PreluOfB>},
      {Operator::kEq, &Forward<Equal, float>,
       &Backward<NoGradient, NoGradient>},
      {Operator::kLt, &Forward<Less, float>, &Backward<NoGradient, NoGradient>},
      {Operator::kLe, &Forward<LessEqual, float>,
       &Backward<NoGradient, NoGradient>},
      {Operator::kGt, &Forward<Greater, float>,
       &Backward<NoGradient, NoGradient>},
      {Operator::kGe, &Forward<GreaterEqual, float>,
       &Backward<NoGradient, NoGradient>},
      {Operator::kWhere, &WhereForward, &WhereBackward}};
}

}  // namespace convgrad

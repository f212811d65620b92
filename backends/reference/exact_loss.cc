// cross_entropy, and losses of elements beside a target.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

constexpr size_t kTarget = 1;
constexpr size_t kWeight = 2;

// Returns what the sum is divided by; `of_mean` unless an attribute says it.
double DenominatorOf(const StepData& data, double of_mean) {
  if (WordAttribute(*data.step, "reduction") == "sum") return 1;
  return HasAttribute(*data.step, "denominator")
             ? FloatAttribute(*data.step, "denominator")
             : of_mean;
}

// The attributes of a cross entropy and its positions, each of which has one
// logit per class, and one class index or a probability per class as target.
struct CrossEntropy {
  explicit CrossEntropy(const StepData& of)
      : data(of),
        view(data.dims(0)),
        has_indices(StepDims(*data.step, *data.shapes).IsIndex(kTarget)),
        smoothing(FloatAttribute(*data.step, "label_smoothing")),
        ignored(IntAttribute(*data.step, "ignore_index")) {}

  int64_t positions() const { return view.batch * view.positions; }
  int64_t classes() const { return view.channels; }
  // Returns where the logit of `label` at `position` lies.
  int64_t OffsetOf(int64_t position, int64_t label) const {
    const int64_t n = position / view.positions;
    return (n * view.channels + label) * view.positions +
           position % view.positions;
  }
  int64_t TargetAt(int64_t position) const {
    return static_cast<int64_t>(data.operands[kTarget][position]);
  }
  bool IsIgnored(int64_t position) const {
    return has_indices && TargetAt(position) == ignored;
  }
  // Returns whether the loss at `position` depends on the class `label`. As in
  // PyTorch, a share of 0 times an infinite logarithm is then NaN.
  bool Counts(int64_t position, int64_t label) const {
    return !has_indices || smoothing > 0 || TargetAt(position) == label;
  }
  double WeightOf(int64_t label) const {
    return data.Has(kWeight) ? data.operands[kWeight][label] : 1;
  }

  // Returns the logarithms of the classes' probabilities.
  Values LogProbabilities(int64_t position) const {
    Values logits;
    for (int64_t c = 0; c < classes(); ++c) {
      logits.push_back(data.operands[0][OffsetOf(position, c)]);
    }
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - top);
    const double offset = top + std::log(sum);
    for (double& logit : logits) logit -= offset;
    return logits;
  }

  // Returns the derivatives of the loss at `position`, before the reduction, by
  // the negative logarithms.
  Values Shares(int64_t position) const {
    Values shares(classes());
    for (int64_t c = 0; c < classes() && smoothing > 0; ++c) {
      shares[c] = smoothing / static_cast<double>(classes()) * WeightOf(c);
    }
    if (has_indices) {
      const int64_t target = TargetAt(position);
      shares[target] += (1 - smoothing) * WeightOf(target);
      return shares;
    }
    for (int64_t c = 0; c < classes(); ++c) {
      const double target = data.operands[kTarget][OffsetOf(position, c)];
      shares[c] += (1 - smoothing) * target * WeightOf(c);
    }
    return shares;
  }

  // Returns what the sum is divided by.
  double Denominator() const {
    if (!has_indices)
      return DenominatorOf(data, static_cast<double>(positions()));
    double sum = 0;
    for (int64_t i = 0; i < positions(); ++i) {
      if (!IsIgnored(i)) sum += WeightOf(TargetAt(i));
    }
    return DenominatorOf(data, sum);
  }

  const StepData& data;
  const ChannelView view;
  const bool has_indices;
  const double smoothing;
  const int64_t ignored;
};

// Checks that each class index is one, or ignore_index.
// Errors: kInvalidArgument, reason OUT_OF_RANGE.
absl::Status CheckTargets(const StepData& data) {
  const CrossEntropy loss(data);
  for (int64_t i = 0; loss.has_indices && i < loss.positions(); ++i) {
    const int64_t target = loss.TargetAt(i);
    const bool is_class = target >= 0 && target < loss.classes();
    if (is_class || loss.IsIgnored(i)) continue;
    return OutOfRange(absl::StrCat(OperandAt(*data.step, kTarget), "[", i, "]"),
                      target,
                      absl::StrCat("a class from 0 to ", loss.classes() - 1,
                                   ", or ", loss.ignored));
  }
  return absl::OkStatus();
}

Values CrossEntropyForward(const StepData& data) {
  const CrossEntropy loss(data);
  double sum = 0;
  for (int64_t i = 0; i < loss.positions(); ++i) {
    if (loss.IsIgnored(i)) continue;
    const Values logs = loss.LogProbabilities(i);
    const Values shares = loss.Shares(i);
    for (int64_t c = 0; c < loss.classes(); ++c) {
      if (loss.Counts(i, c)) sum -= shares[c] * logs[c];
    }
  }
  return {sum / loss.Denominator()};
}

StepGradients CrossEntropyBackward(const StepData& data,
                                   absl::Span<const double> gradient) {
  const CrossEntropy loss(data);
  const double scale = gradient[0] / loss.Denominator();
  StepGradients gradients = ZeroGradients(data);
  for (int64_t i = 0; i < loss.positions(); ++i) {
    if (loss.IsIgnored(i)) continue;
    const Values logs = loss.LogProbabilities(i);
    const Values shares = loss.Shares(i);
    double total = 0;
    for (const double share : shares) total += share;
    Values probabilities;
    for (const double log : logs) probabilities.push_back(std::exp(log));
    data.WriteIntermediate(&probabilities);
    for (int64_t c = 0; c < loss.classes(); ++c) {
      const int64_t at = loss.OffsetOf(i, c);
      gradients[0][at] = scale * (probabilities[c] * total - shares[c]);
      if (loss.has_indices) continue;
      gradients[kTarget][at] =
          -scale * (1 - loss.smoothing) * loss.WeightOf(c) * logs[c];
    }
  }
  return gradients;
}

// A loss that is a function of each element x and its target.
struct ElementLoss {
  Operator op;
  double (*value)(const ProgramStep& step, double x, double target);
  // The derivatives by x and by the target. Null: the negative one by x.
  double (*by_x)(const ProgramStep& step, double x, double target);
  double (*by_target)(const ProgramStep& step, double x,
                      double target) = nullptr;
};

// Returns 0 of NaN, as PyTorch.
double SignOf(double x) { return x > 0 ? 1 : (x < 0 ? -1 : 0); }

// Returns log(sigmoid(x)).
double LogSigmoid(double x) {
  return std::min(x, 0.0) - std::log1p(std::exp(-std::fabs(x)));
}

constexpr ElementLoss kElementLosses[] = {
    {Operator::kMse,
     [](const ProgramStep&, double x, double t) { return (x - t) * (x - t); },
     [](const ProgramStep&, double x, double t) { return 2 * (x - t); }},
    {Operator::kL1,
     [](const ProgramStep&, double x, double t) { return std::fabs(x - t); },
     [](const ProgramStep&, double x, double t) { return SignOf(x - t); }},
    {Operator::kSmoothL1,
     [](const ProgramStep& step, double x, double t) {
       const double beta = FloatAttribute(step, "beta");
       const double distance = std::fabs(x - t);
       return distance < beta ? distance * distance / (2 * beta)
                              : distance - beta / 2;
     },
     [](const ProgramStep& step, double x, double t) {
       const double beta = FloatAttribute(step, "beta");
       const bool is_far = beta == 0 || std::fabs(x - t) >= beta;
       return is_far ? SignOf(x - t) : (x - t) / beta;
     }},
    // -(pos_weight * t * log(sigmoid(x)) + (1 - t) * log(sigmoid(-x))), in
    // PyTorch's form, on which depends which infinities give NaN.
    {Operator::kBinaryCrossEntropy,
     [](const ProgramStep& step, double x, double t) {
       const double weight = 1 + (FloatAttribute(step, "pos_weight") - 1) * t;
       return (1 - t) * x - weight * LogSigmoid(x);
     },
     [](const ProgramStep& step, double x, double t) {
       const double sigmoid = 1 / (1 + std::exp(-x));
       return (1 - t) * sigmoid -
              FloatAttribute(step, "pos_weight") * t / (1 + std::exp(x));
     },
     [](const ProgramStep& step, double x, double) {
       return LogSigmoid(-x) -
              FloatAttribute(step, "pos_weight") * LogSigmoid(x);
     }}};

Values ElementForward(const StepData& data) {
  const ElementLoss& loss = RowOf(kElementLosses, data.step->op);
  double sum = 0;
  for (size_t i = 0; i < data.operands[0].size(); ++i) {
    sum +=
        loss.value(*data.step, data.operands[0][i], data.operands[kTarget][i]);
  }
  return {sum /
          DenominatorOf(data, static_cast<double>(CountOf(data.dims(0))))};
}

StepGradients ElementBackward(const StepData& data,
                              absl::Span<const double> gradient) {
  const ElementLoss& loss = RowOf(kElementLosses, data.step->op);
  const double scale =
      gradient[0] /
      DenominatorOf(data, static_cast<double>(CountOf(data.dims(0))));
  StepGradients gradients(2);
  for (size_t i = 0; i < data.operands[0].size(); ++i) {
    const double x = data.operands[0][i], target = data.operands[kTarget][i];
    const double by_x = loss.by_x(*data.step, x, target);
    gradients[0].push_back(scale * by_x);
    gradients[1].push_back(scale *
                           (loss.by_target == nullptr
                                ? -by_x
                                : loss.by_target(*data.step, x, target)));
  }
  return gradients;
}

}  // namespace

std::vector<ExactOperator> ExactLosses() {
  std::vector<ExactOperator> operators =
      OperatorsOf(kElementLosses, &ElementForward, &ElementBackward);
  operators.push_back({.op = Operator::kCrossEntropy,
                       .forward = &CrossEntropyForward,
                       .backward = &CrossEntropyBackward,
                       .check = &CheckTargets});
  return operators;
}

}  // namespace convgrad

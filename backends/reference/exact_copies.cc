// concat and flatten.
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Calls visit(operand, begin, end) for each run of a concat's result that lies
// in one operand, `begin` and `end` being offsets in that operand. A flatten is
// one run.
template <typename Visit>
void ForEachRun(const StepData& data, const Visit& visit) {
  const bool is_concat = data.step->op == Operator::kConcat;
  const size_t axis = is_concat ? AxisOf(data) : 0;
  int64_t outer = 1;
  for (size_t i = 0; i < axis; ++i) outer *= data.result_dims()[i];
  for (int64_t n = 0; n < outer; ++n) {
    for (size_t i = 0; i < data.operands.size(); ++i) {
      const int64_t row = CountOf(data.dims(i)) / outer;
      visit(i, n * row, (n + 1) * row);
    }
  }
}

Values CopyForward(const StepData& data) {
  Values y;
  ForEachRun(data, [&](size_t i, int64_t begin, int64_t end) {
    const auto run = data.operands[i].subspan(begin, end - begin);
    y.insert(y.end(), run.begin(), run.end());
  });
  return y;
}

StepGradients CopyBackward(const StepData& data,
                           absl::Span<const double> gradient) {
  StepGradients gradients(data.operands.size());
  ForEachRun(data, [&](size_t i, int64_t begin, int64_t end) {
    const auto run = gradient.subspan(0, end - begin);
    gradients[i].insert(gradients[i].end(), run.begin(), run.end());
    gradient.remove_prefix(run.size());
  });
  return gradients;
}

}  // namespace

std::vector<ExactOperator> ExactCopies() {
  return {{Operator::kConcat, &CopyForward, &CopyBackward},
          {Operator::kFlatten, &CopyForward, &CopyBackward}};
}

}  // namespace convgrad

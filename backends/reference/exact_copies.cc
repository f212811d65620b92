// Computes concat, pad and index_select.
#include <algorithm>
#include <numeric>
#include <utility>

#include "backends/core/program/operators/moves.h"
#include "backends/core/status.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

// Calls visit(operand, begin, end) for each run of a concat's result that comes
// from one operand; `begin` and `end` are offsets in that operand.
template <typename Visit>
void ForEachRun(const StepData& data, const Visit& visit) {
  const int64_t outer = CountOf(
      {data.result_dims().begin(), data.result_dims().begin() + AxisOf(data)});
  for (int64_t n = 0; n < outer; ++n) {
    for (size_t i = 0; i < data.operands.size(); ++i) {
      const int64_t row = CountOf(data.dims(i)) / outer;
      visit(i, n * row, (n + 1) * row);
    }
  }
}

Values ConcatForward(const StepData& data) {
  Values y;
  ForEachRun(data, [&](size_t i, int64_t begin, int64_t end) {
    const auto run = data.operands[i].subspan(begin, end - begin);
    y.insert(y.end(), run.begin(), run.end());
  });
  return y;
}

StepGradients ConcatBackward(const StepData& data,
                             absl::Span<const double> gradient) {
  StepGradients gradients(data.operands.size());
  ForEachRun(data, [&](size_t i, int64_t begin, int64_t end) {
    const auto run = gradient.subspan(0, end - begin);
    gradients[i].insert(gradients[i].end(), run.begin(), run.end());
    gradient.remove_prefix(run.size());
  });
  return gradients;
}

// Returns for each axis the operand's index of each result index, or -1 for a
// pad's value. An index_select's index counts as one axis.
std::vector<std::vector<int64_t>> SourcesOf(const StepData& data) {
  std::vector<std::vector<int64_t>> sources;
  if (data.step->op == Operator::kPad) {
    for (const PadAxis& axis : PadAxesOf(*data.step, *data.shapes)) {
      ListPadSources(*data.step, axis, sources.emplace_back(axis.out).data());
    }
    return sources;
  }
  for (const int64_t extent : data.dims(0)) {
    std::vector<int64_t>& all = sources.emplace_back(extent);
    std::iota(all.begin(), all.end(), 0);
  }
  sources[AxisOf(data)].assign(data.operands[1].begin(),
                               data.operands[1].end());
  return sources;
}

// Returns for each element of the result the element of the operand, or -1.
std::vector<int64_t> ElementsOf(const StepData& data) {
  std::vector<int64_t> elements = {0};
  const auto sources = SourcesOf(data);
  for (size_t axis = 0; axis < sources.size(); ++axis) {
    std::vector<int64_t> next;
    for (const int64_t element : elements) {
      for (const int64_t source : sources[axis]) {
        next.push_back(element < 0 || source < 0
                           ? -1
                           : element * data.dims(0)[axis] + source);
      }
    }
    elements = std::move(next);
  }
  return elements;
}

Values MoveForward(const StepData& data) {
  const double value = FloatAttribute(*data.step, "value");
  Values y;
  for (const int64_t at : ElementsOf(data)) {
    y.push_back(at < 0 ? value : data.operands[0][at]);
  }
  return y;
}

StepGradients MoveBackward(const StepData& data,
                           absl::Span<const double> gradient) {
  StepGradients gradients = ZeroGradients(data);
  const std::vector<int64_t> elements = ElementsOf(data);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] >= 0) gradients[0][elements[i]] += gradient[i];
  }
  return gradients;
}

absl::Status CheckIndices(const StepData& data) {
  const int64_t extent = data.dims(0)[AxisOf(data)];
  for (size_t i = 0; i < data.operands[1].size(); ++i) {
    // Larger doubles can't be converted to an integer.
    const double index = std::clamp(data.operands[1][i], -0x1p62, 0x1p62);
    RETURN_IF_ERROR(CheckIndex(*data.step, static_cast<int64_t>(i),
                               static_cast<int64_t>(index), extent));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<ExactOperator> ExactCopies() {
  return {{Operator::kConcat, &ConcatForward, &ConcatBackward},
          {Operator::kPad, &MoveForward, &MoveBackward},
          {Operator::kIndexSelect, &MoveForward, &MoveBackward, &CheckIndices}};
}

}  // namespace convgrad

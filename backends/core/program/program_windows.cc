// Where the windows of poolings lie, and what an upsample reads.
#include <algorithm>
#include <cmath>

#include "backends/core/checked_math.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad {

bool IsPooling(Operator op) {
  return op == Operator::kMaxPool || op == Operator::kAvgPool ||
         op == Operator::kAdaptiveAvgPool || op == Operator::kUpsample;
}

int64_t MostTaps(const ProgramStep& step, const ProgramShapes& shapes,
                 size_t axis) {
  const int64_t in = shapes.dims.at(step.operands[0])[axis + 2];
  const int64_t out = shapes.dims.at(step.result)[axis + 2];
  if (step.op == Operator::kUpsample) {
    return WordAttribute(step, "mode") == "nearest" ? out
                                                    : SaturatingMul(out, 2);
  }
  // Neighbours share one element at most.
  if (step.op == Operator::kAdaptiveAvgPool) {
    return in % out == 0 ? in : SaturatingAdd(in, out);
  }
  const PoolAxis window = PoolAxesOf(step, shapes)[axis];
  return SaturatingMul(out, std::min(window.kernel, in));
}

AxisWindow PaddedWindow(const PoolAxis& axis, int64_t index) {
  const int64_t begin = index * axis.stride - axis.pad_begin;
  return {begin, begin + axis.kernel};
}

int64_t AveragedElements(const PoolAxis& axis, int64_t index) {
  const AxisWindow window = PaddedWindow(axis, index);
  return std::min(window.end, axis.in + axis.pad_begin) - window.begin;
}

AxisWindow AdaptiveWindow(int64_t in, int64_t out, int64_t index) {
  return {index * in / out, CeilDiv((index + 1) * in, out)};
}

int64_t NearestSource(const UpsampleAxis& axis, int64_t index) {
  const float source =
      std::floor(static_cast<float>(index) * static_cast<float>(axis.step));
  return std::min(static_cast<int64_t>(source), axis.in - 1);
}

LinearSource LinearSourceOf(const UpsampleAxis& axis, int64_t index) {
  const double at = static_cast<double>(index);
  const double source = axis.align_corners
                            ? axis.step * at
                            : std::max(axis.step * (at + 0.5) - 0.5, 0.0);
  const int64_t low = std::min(static_cast<int64_t>(source), axis.in - 1);
  return {low, std::min(low + 1, axis.in - 1),
          std::min(source - static_cast<double>(low), 1.0)};
}

}  // namespace convgrad

// Computes poolings and upsampling.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/core/program/operators/windows/pooling.h"
#include "backends/core/program/operators/windows/upsample.h"
#include "backends/reference/exact_operators.h"

namespace convgrad {
namespace {

struct AxisTap {
  int64_t in;
  double weight;
};

// One axis. An output is the sum of its taps divided by its divisor.
struct AxisMap {
  int64_t in = 1;
  std::vector<std::vector<AxisTap>> taps = {{{0, 1}}};  // by output
  std::vector<double> divisors = {1};                   // by output
};

// The three spatial axes. Missing leading axes map one element to itself.
using AxisMaps = std::vector<AxisMap>;

AxisMap EmptyMap(int64_t in, int64_t out) {
  AxisMap map;
  map.in = in;
  map.taps.assign(out, {});
  map.divisors.assign(out, 1);
  return map;
}

// Returns the windows without the pads.
AxisMap MapOf(const PoolAxis& axis) {
  AxisMap map = EmptyMap(axis.in, axis.out);
  for (int64_t out = 0; out < axis.out; ++out) {
    for (int64_t tap = 0; tap < axis.kernel; ++tap) {
      const int64_t in =
          out * axis.stride - axis.pad_begin + tap * axis.dilation;
      if (in >= 0 && in < axis.in) map.taps[out].push_back({in, 1});
    }
  }
  return map;
}

// Sets the number of elements that an average divides by.
void SetDivisors(const ProgramStep& step, const PoolAxis& axis, bool is_first,
                 AxisMap* map) {
  const int64_t given = IntAttribute(step, "divisor_override");
  const bool counts_pads = BoolAttribute(step, "count_include_pad");
  for (int64_t out = 0; out < axis.out; ++out) {
    double divisor = counts_pads
                         ? static_cast<double>(AveragedElements(axis, out))
                         : static_cast<double>(map->taps[out].size());
    if (given != 0) divisor = is_first ? static_cast<double>(given) : 1;
    map->divisors[out] = divisor;
  }
}

AxisMap AdaptiveMap(int64_t in, int64_t out) {
  AxisMap map = EmptyMap(in, out);
  for (int64_t i = 0; i < out; ++i) {
    const AxisWindow window = AdaptiveWindow(in, out, i);
    for (int64_t at = window.begin; at < window.end; ++at) {
      map.taps[i].push_back({at, 1});
    }
    map.divisors[i] = static_cast<double>(map.taps[i].size());
  }
  return map;
}

AxisMap MapOf(const UpsampleAxis& axis, const std::string& mode) {
  AxisMap map = EmptyMap(axis.in, axis.out);
  for (int64_t out = 0; out < axis.out; ++out) {
    if (mode == "bicubic") {
      for (const auto& tap : CubicSourceOf(axis, out).taps) {
        map.taps[out].push_back({tap.index, tap.weight});
      }
    } else if (mode == "nearest") {
      map.taps[out] = {{NearestSource(axis, out), 1}};
    } else {
      const LinearSource source = LinearSourceOf(axis, out);
      map.taps[out] = {{source.low, 1 - source.weight},
                       {source.high, source.weight}};
    }
  }
  return map;
}

// Returns the axes that the operand has.
AxisMaps MapsOfStep(const StepData& data) {
  const ProgramStep& step = *data.step;
  AxisMaps maps;
  if (step.op == Operator::kUpsample) {
    const std::string mode = WordAttribute(step, "mode");
    for (const UpsampleAxis& axis : UpsampleAxesOf(step, *data.shapes)) {
      maps.push_back(MapOf(axis, mode));
    }
    return maps;
  }
  if (HasAdaptiveWindows(step)) {
    for (size_t i = 2; i < data.dims(0).size(); ++i) {
      maps.push_back(AdaptiveMap(data.dims(0)[i], data.result_dims()[i]));
    }
    return maps;
  }
  for (const PoolAxis& axis : PoolAxesOf(step, *data.shapes)) {
    maps.push_back(MapOf(axis));
    if (step.op == Operator::kMaxPool) continue;
    SetDivisors(step, axis, maps.size() == 1, &maps.back());
  }
  return maps;
}

// Returns the inputs that each output of a pooling or an upsampling reads, axis
// by axis. A max_pool has no divisors.
AxisMaps AxisMapsOf(const StepData& data) {
  AxisMaps maps = MapsOfStep(data);
  maps.insert(maps.begin(), 3 - maps.size(), AxisMap());
  return maps;
}

// Calls visit(out, in, weight, divisor) with the offsets of every pair of
// `planes` planes, outputs and then inputs in row-major order.
template <typename Visit>
void ForEachTap(const AxisMaps& maps, int64_t planes, const Visit& visit) {
  const AxisMap &d = maps[0], &h = maps[1], &w = maps[2];
  int64_t out = 0;
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (size_t od = 0; od < d.taps.size(); ++od) {
      for (size_t oh = 0; oh < h.taps.size(); ++oh) {
        for (size_t ow = 0; ow < w.taps.size(); ++ow, ++out) {
          const double divisor =
              d.divisors[od] * h.divisors[oh] * w.divisors[ow];
          for (const AxisTap& td : d.taps[od]) {
            for (const AxisTap& th : h.taps[oh]) {
              for (const AxisTap& tw : w.taps[ow]) {
                const int64_t in =
                    ((plane * d.in + td.in) * h.in + th.in) * w.in + tw.in;
                visit(out, in, td.weight * th.weight * tw.weight, divisor);
              }
            }
          }
        }
      }
    }
  }
}

int64_t PlanesOf(const StepData& data) {
  return data.dims(0)[0] * data.dims(0)[1];
}

// Returns for each output the input that it copies: the first of equal ones,
// the last of NaNs, as in PyTorch.
std::vector<int64_t> Maxima(const StepData& data) {
  const auto x = data.operands[0];
  std::vector<int64_t> maxima(CountOf(data.result_dims()), -1);
  ForEachTap(AxisMapsOf(data), PlanesOf(data),
             [&](int64_t out, int64_t in, double, double) {
               int64_t& best = maxima[out];
               if (best < 0 || x[in] > x[best] || std::isnan(x[in])) best = in;
             });
  return maxima;
}

// Returns the terms of the longest sum.
int64_t TermsOf(const AxisMaps& maps) {
  size_t terms = 1;
  for (const AxisMap& map : maps) {
    size_t longest = 0;
    for (const auto& taps : map.taps) longest = std::max(longest, taps.size());
    terms *= longest;
  }
  return static_cast<int64_t>(terms);
}

Values MaxPoolForward(const StepData& data) {
  Values y;
  for (const int64_t in : Maxima(data)) y.push_back(data.operands[0][in]);
  return y;
}

StepGradients MaxPoolBackward(const StepData& data,
                              absl::Span<const double> gradient) {
  Values values(data.operands[0].size());
  const std::vector<int64_t> maxima = Maxima(data);
  for (size_t out = 0; out < maxima.size(); ++out) {
    values[maxima[out]] += gradient[out];
  }
  return {values};
}

// Computes operators that are linear along each axis: all except max_pool.
Values SeparableForward(const StepData& data) {
  const auto x = data.operands[0];
  Values y(CountOf(data.result_dims()));
  Values divisors(y.size());
  const AxisMaps maps = AxisMapsOf(data);
  ForEachTap(maps, PlanesOf(data),
             [&](int64_t out, int64_t in, double weight, double divisor) {
               y[out] += x[in] * weight;
               divisors[out] = divisor;
             });
  // Once for each rounding of a sum of this many terms.
  for (int64_t i = TermsOf(maps); i > 0; --i) data.WriteIntermediate(&y);
  for (size_t out = 0; out < y.size(); ++out) y[out] /= divisors[out];
  return y;
}

StepGradients SeparableBackward(const StepData& data,
                                absl::Span<const double> gradient) {
  Values values(data.operands[0].size());
  ForEachTap(AxisMapsOf(data), PlanesOf(data),
             [&](int64_t out, int64_t in, double weight, double divisor) {
               values[in] += gradient[out] * weight / divisor;
             });
  return {values};
}

}  // namespace

std::vector<ExactOperator> ExactPoolings() {
  return {{Operator::kMaxPool, &MaxPoolForward, &MaxPoolBackward},
          {Operator::kAvgPool, &SeparableForward, &SeparableBackward},
          {Operator::kAdaptiveAvgPool, &SeparableForward, &SeparableBackward},
          {Operator::kAdaptiveMaxPool, &MaxPoolForward, &MaxPoolBackward},
          {Operator::kUpsample, &SeparableForward, &SeparableBackward}};
}

}  // namespace convgrad

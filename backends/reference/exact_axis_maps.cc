#include "backends/reference/exact_axis_maps.h"

#include <string>
#include <utility>

#include "backends/core/program/operators/windows/pooling.h"
#include "backends/core/program/operators/windows/upsample.h"

namespace convgrad {
namespace {

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

std::vector<AxisMap> MapsOfStep(const StepData& data) {
  const ProgramStep& step = *data.step;
  std::vector<AxisMap> maps;
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

}  // namespace

AxisMaps AxisMapsOf(const StepData& data) {
  std::vector<AxisMap> given = MapsOfStep(data);
  AxisMaps maps;
  for (size_t i = 0; i < given.size(); ++i) {
    maps[maps.size() - given.size() + i] = std::move(given[i]);
  }
  return maps;
}

}  // namespace convgrad

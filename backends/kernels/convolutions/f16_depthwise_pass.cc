#include "backends/kernels/convolutions/f16_depthwise_pass.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backends/core/checked_math.h"

namespace convgrad::f16_depthwise {
namespace {

// Minimum number of elements of a band, if there are as many: 32 KiB of 16
// channels in f32.
constexpr int64_t kBandElements = 512;

bool IsCovered(const AxisShape& axis) {
  int64_t count = 0;
  for (const Phase& phase : axis.phases) count += phase.count;
  return count == axis.result;
}

// Returns the range of the source that a phase reads.
Range SourceOf(const AxisShape& axis, const Phase& phase) {
  const auto [low, high] = std::minmax_element(
      phase.taps.begin(), phase.taps.end(),
      [](const Tap& a, const Tap& b) { return a.at < b.at; });
  return {
      phase.source_first + low->at,
      phase.source_first + (phase.count - 1) * axis.source_step + high->at + 1};
}

}  // namespace

AxisShape ForwardShape(const SpatialAxis& axis) {
  Phase all = {0, axis.out, 0, {}};
  for (int64_t k = 0; k < axis.kernel; ++k) {
    all.taps.push_back({k, k * axis.dilation});
  }
  AxisShape shape = {axis.out, axis.in, 1, axis.stride, axis.pad_begin, 0, {}};
  shape.padded = std::max(shape.left + axis.in, (axis.out - 1) * axis.stride +
                                                    all.taps.back().at + 1);
  shape.phases.push_back(std::move(all));
  return shape;
}

AxisShape BackwardShape(const SpatialAxis& axis) {
  const int64_t reach = (axis.kernel - 1) * axis.dilation / axis.stride;
  AxisShape shape = {axis.in, axis.out,         axis.stride, 1,
                     reach,   reach + axis.out, {}};
  // Only offsets that a tap reaches, because a stride may be far larger than
  // the kernel.
  std::set<int64_t> offsets;
  for (int64_t k = 0; k < axis.kernel; ++k) {
    offsets.insert(k * axis.dilation % axis.stride);
  }
  for (const int64_t p : offsets) {
    std::vector<Tap> taps;
    for (int64_t k = 0; k < axis.kernel; ++k) {
      const int64_t steps = p - k * axis.dilation;
      if (steps % axis.stride == 0) taps.push_back({k, steps / axis.stride});
    }
    // Element i * stride + p - pad_begin of the input is connected to the
    // output's elements i + Tap::at. Excludes elements without any.
    const int64_t begin =
        std::max(CeilDiv(axis.pad_begin - p, axis.stride), -taps.front().at);
    const int64_t end =
        std::min(CeilDiv(axis.in + axis.pad_begin - p, axis.stride),
                 axis.out - taps.back().at);
    if (begin >= end) continue;
    shape.phases.push_back({begin * axis.stride + p - axis.pad_begin,
                            end - begin, reach + begin, std::move(taps)});
    shape.padded = std::max(shape.padded, reach + end);
  }
  return shape;
}

Phase Clip(const AxisShape& axis, const Phase& phase, const Range& rows) {
  const auto index = [&](int64_t row) {
    return std::clamp<int64_t>(
        CeilDiv(std::max<int64_t>(row - phase.first, 0), axis.step), 0,
        phase.count);
  };
  const int64_t begin = index(rows.begin);
  return {phase.first + begin * axis.step, index(rows.end) - begin,
          phase.source_first + begin * axis.source_step, phase.taps};
}

Pass::Pass(AxisShape of_y, AxisShape of_x)
    : y(std::move(of_y)),
      x(std::move(of_x)),
      is_covered(IsCovered(y) && IsCovered(x)) {
  // Bands read some rows of the source twice. Limits these to the number of
  // their own rows.
  int64_t shared = 0;
  for (int64_t row = 0; row < std::min(y.result, y.step); ++row) {
    shared = std::max(shared, Source({row, row + 1}).size());
  }
  const int64_t rows = std::max(
      {kBandElements / x.result, shared * y.result / y.source, int64_t{1}});
  band_rows = CeilDiv(y.result, std::max<int64_t>(y.result / rows, 1));
  for (int64_t band = 0; band < bands(); ++band) {
    source_rows = std::max(source_rows, Source(Band(band)).size());
  }
}

Range Pass::Band(int64_t index) const {
  return {index * band_rows, std::min((index + 1) * band_rows, y.result)};
}

Range Pass::Share(const Range& rows) const {
  return {rows.begin * y.source / y.result, rows.end * y.source / y.result};
}

Range Pass::Source(const Range& rows) const {
  const Range share = Share(rows);
  Range source = {y.left + share.begin, y.left + share.end};
  for (const Phase& whole : y.phases) {
    const Phase phase = Clip(y, whole, rows);
    if (phase.count == 0) continue;
    const Range read = SourceOf(y, phase);
    if (source.size() == 0) source = read;
    source.begin = std::min(source.begin, read.begin);
    source.end = std::max(source.end, read.end);
  }
  return source;
}

}  // namespace convgrad::f16_depthwise

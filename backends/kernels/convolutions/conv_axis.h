// `ConvAxis` is one spatial axis of a convolution. The functions tell which
// taps and outputs meet the input, so that kernels never multiply padding.
#pragma once

#include <algorithm>
#include <cstdint>

namespace convgrad {

// Units: positions. Strides and dilations may be as large as an int64.
struct ConvAxis {
  int64_t in = 1, out = 1;
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t pad = 0;  // at the begin; may be negative

  // Returns the input's position that the first tap reads for an output.
  int64_t FirstOf(int64_t output) const { return output * stride - pad; }
};

// Some taps of the kernel, or some outputs.
struct AxisRange {
  int64_t begin = 0, end = 0;

  friend bool operator==(const AxisRange&, const AxisRange&) = default;
};

// Returns how many of the `count` positions 0, step, 2 * step, ... are less
// than `limit`.
inline int64_t StepsBefore(int64_t limit, int64_t step, int64_t count) {
  return limit <= 0 ? 0 : std::min((limit - 1) / step + 1, count);
}

// Returns the outputs for which a tap sees the input.
inline AxisRange OutputsOf(const ConvAxis& axis, int64_t tap) {
  const int64_t first = tap * axis.dilation - axis.pad;
  return {StepsBefore(-first, axis.stride, axis.out),
          StepsBefore(axis.in - first, axis.stride, axis.out)};
}

// Returns the taps that see the input for an output.
inline AxisRange TapsOf(const ConvAxis& axis, int64_t output) {
  const int64_t first = axis.FirstOf(output);
  return {StepsBefore(-first, axis.dilation, axis.kernel),
          StepsBefore(axis.in - first, axis.dilation, axis.kernel)};
}

// Returns the end of the outputs from `begin` on, before `limit`, that see the
// same taps as output `begin`, which are `taps`.
inline int64_t EndOfRun(const ConvAxis& axis, const AxisRange& taps,
                        int64_t begin, int64_t limit) {
  if (taps == AxisRange{0, axis.kernel}) {
    return std::min(limit, OutputsOf(axis, axis.kernel - 1).end);
  }
  int64_t end = begin + 1;
  while (end < limit && TapsOf(axis, end) == taps) ++end;
  return end;
}

}  // namespace convgrad

// `AxisMapsOf` finds the inputs that each output of a pooling or an upsampling
// reads, axis by axis.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/reference/program_step_data.h"

namespace convgrad {

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

// Missing leading axes map one element to itself.
using AxisMaps = std::array<AxisMap, 3>;

// Requires: a pooling or an upsample step. A max_pool has no divisors.
AxisMaps AxisMapsOf(const StepData& data);

// Calls visit(out, in, weight, divisor) with the offsets of every pair of
// `planes` planes, outputs and then inputs in row-major order.
template <typename Visit>
void ForEachTap(const AxisMaps& maps, int64_t planes, const Visit& visit) {
  const auto& [d, h, w] = maps;
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

}  // namespace convgrad

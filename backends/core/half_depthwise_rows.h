// The inner loops of HalfDepthwise, one row at a time, with the widest vectors
// that the CPU at hand has. Channels lie next to each other everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/core/data_type.h"

namespace convgrad::half_depthwise {

// The most taps that one element of a result may be the sum of.
inline constexpr int64_t kMaxTaps = 256;

// One kernel tap that meets one element of the other side.
struct Tap {
  int32_t tap;
  int32_t at;
};

// The taps that meet each element of a side, in ascending order.
struct TapTable {
  const Tap* begin(int64_t i) const { return taps.data() + first[i]; }
  const Tap* end(int64_t i) const { return taps.data() + first[i + 1]; }
  void Append(const std::vector<Tap>& more) {
    taps.insert(taps.end(), more.begin(), more.end());
    first.push_back(static_cast<int64_t>(taps.size()));
  }

  std::vector<Tap> taps;
  std::vector<int64_t> first = {0};  // by element, and one past the last
};

struct ChannelRange {
  int64_t begin, end, all;
};

// A side of the convolution that is gathered from the other.
struct Gather {
  const uint16_t* source;  // the image, f16
  const TapTable* y;       // of the result's elements
  const TapTable* x;
  int64_t source_width, result_width, kernel_width;
};

// Writes row `row` of a result, f16 or f32: the sums over its taps of source
// times weight, and `bias` (per channel, or null).
void GatherRow(const Gather& gather, int64_t row, const float* weight,
               const float* bias, DataType dtype, const ChannelRange& channels,
               void* result);

// A row of grad_output beside a row of the data that meets it.
struct RowPair {
  const uint16_t* data;
  const uint16_t* grad;
  const TapTable* x;  // of grad_output's elements
  int64_t width, kernel_width;
  int64_t inner_begin, inner_end;  // its elements that all taps meet
};

// Adds to each tap's sums (f32, kernel_width rows of channels) what a row
// contributes.
void AddRow(const RowPair& row, const ChannelRange& channels, float* sums);

// Adds the elements of a row to `sums`, one per channel.
void AddElements(const uint16_t* row, int64_t width,
                 const ChannelRange& channels, float* sums);

}  // namespace convgrad::half_depthwise

// The inner loops of F16Depthwise, with the widest vectors that the CPU at
// hand has, for kBlock channels that lie next to each other.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "backends/core/data_type.h"

namespace convgrad::f16_depthwise {

inline constexpr int64_t kBlock = 16;

// What a kernel tap brings together, in f32.
struct BlockTap {
  const float* source;  // what the first element meets
  const float* weight;
  float* sums;
};

// `rows` times `columns` elements that meet the same taps. Steps in elements.
struct BlockGrid {
  int64_t rows, columns;
  int64_t row_step, column_step;
  int64_t source_row_step, source_column_step;
};

// Where the elements of an activation lie; each has its kBlock channels.
struct ResultBlock {
  void* first = nullptr;
  DataType dtype = DataType::kF16;  // or f32
  int64_t pitch = kBlock;           // from one element to the next
};
struct DataBlock {
  const uint16_t* first = nullptr;  // f16
  int64_t pitch = kBlock;
};

// Writes for each element of the grid
//   result = start + the sum over taps of source * weight,
// and adds source * data to each tap's sums. Either of result and data is null
// if that isn't asked for. `partial` has place for the grid in f32.
// Requires: at least one tap.
void RunTaps(const BlockGrid& grid, absl::Span<const BlockTap> taps,
             const float* start, const ResultBlock& result,
             const DataBlock& data, float* partial);

// Converts `count` elements to f32, one after the other.
void Widen(const DataBlock& elements, int64_t count, float* to);

// Adds `count` elements in f32 to `sums`.
void AddElements(const float* elements, int64_t count, float* sums);

}  // namespace convgrad::f16_depthwise

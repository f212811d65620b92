// Runs the inner loops of F16Depthwise on kBlock contiguous channels, with the
// widest vectors of this CPU.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "backends/core/data_type.h"

namespace convgrad::f16_depthwise {

inline constexpr int64_t kBlock = 16;

// A kernel tap with its source and weight, in f32, and its sums.
struct BlockTap {
  const float* source;  // the element that the grid's first element reads
  const float* weight;
  double* sums;
};

// `rows` times `columns` elements that use the same taps. Steps are in
// elements.
struct BlockGrid {
  int64_t rows, columns;
  int64_t row_step, column_step;
  int64_t source_row_step, source_column_step;
};

// The elements of an activation; each has kBlock contiguous channels.
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
// and adds source * data to each tap's sums: up to 128 products in f32, and
// their sum in f64. `result` or `data` is null if it isn't requested. `partial`
// has room for the grid in f32.
// Requires: at least one tap.
void RunTaps(const BlockGrid& grid, absl::Span<const BlockTap> taps,
             const float* start, const ResultBlock& result,
             const DataBlock& data, float* partial);

// Converts `count` elements to contiguous f32.
void Widen(const DataBlock& elements, int64_t count, float* to);

// Adds `count` f32 elements to `sums`, up to 512 of a channel in f32 before
// their sum is added in f64.
void AddElements(const float* elements, int64_t count, double* sums);

}  // namespace convgrad::f16_depthwise

// layer_norm and rms_norm: each row of a tensor is normalized by itself.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// How the rows of a tensor lie: one behind the other, or as the channels of
// images in blocks, a row for each position.
struct RowPlaces {
  int64_t block = 0;      // elements; 0: one behind the other
  int64_t positions = 1;  // of an image
};

// The shape and numbers of a norm.
struct RowNorm {
  int64_t rows = 0;
  int64_t length = 1;               // elements of a row
  DataType dtype = DataType::kF32;  // kF32 or kBF16
  // Whether the mean is subtracted: layer_norm. Otherwise rms_norm.
  bool is_centred = true;
  double eps = 0;
  RowPlaces x, y;  // of dx and dy, too

  // Floats that a forward writes for its backward: mean and reciprocal
  // deviation of each row.
  int64_t moments() const { return 2 * rows; }
  // Doubles that a backward works with.
  int64_t scratch() const;
};

// y = (x - mean) / sqrt(variance + eps) * weight + bias. `weight` and `bias`
// have `length` f32 elements, or are null.
//
// Thread-safe, as is the other function; buffers need no alignment.
struct RowNormForward {
  const void* x;
  const float* weight;
  const float* bias;
  void* y;
  float* moments;
};
void NormalizeRows(const RowNorm& norm, const RowNormForward& tensors,
                   RunParts run);

// Gradients of the above: dx, and those of weight and bias, each of which may
// be null.
struct RowNormBackward {
  const void* dy;
  const void* x;
  const float* weight;
  const float* moments;
  void* dx;
  float* weight_gradient;
  float* bias_gradient;
  double* scratch;
};
void NormalizeRowsBackward(const RowNorm& norm, const RowNormBackward& tensors,
                           RunParts run);

}  // namespace convgrad

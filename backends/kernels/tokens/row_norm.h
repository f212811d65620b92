// Computes layer_norm and rms_norm, which normalize each row of a tensor
// separately.
#pragma once

#include <cstdint>

#include "backends/core/data_type.h"
#include "backends/kernels/operators/channel_blocks.h"

namespace convgrad {

// The places of a tensor's rows: contiguous, or the channels of images in
// blocks, with one row for each position.
struct RowPlaces {
  int64_t block = 0;      // elements; 0: contiguous rows
  int64_t positions = 1;  // of an image
};

// The shape and numbers of a norm.
struct RowNorm {
  int64_t rows = 0;
  int64_t length = 1;               // elements of a row
  DataType dtype = DataType::kF32;  // kF32 or kBF16
  // True for layer_norm, which subtracts the mean; false for rms_norm.
  bool is_centred = true;
  double eps = 0;
  RowPlaces x, y;  // also of dx and dy

  // Returns the doubles that a forward writes for its backward: mean and
  // reciprocal deviation of each row. A mean in f32 may be wrong by more than
  // the deviation of a row that is far from 0.
  int64_t moments() const { return 2 * rows; }
  // Returns the doubles of scratch that a backward needs.
  int64_t scratch() const;
};

// y = (x - mean) / sqrt(variance + eps) * weight + bias. `weight` and `bias`
// have `length` f32 elements, or are null.
//
// Both functions are thread-safe. Buffers need no alignment.
struct RowNormForward {
  const void* x;
  const float* weight;
  const float* bias;
  void* y;
  double* moments;
};
void NormalizeRows(const RowNorm& norm, const RowNormForward& tensors,
                   RunParts run);

// The gradients of RowNormForward: dx, and the gradients of weight and bias.
// Each may be null.
struct RowNormBackward {
  const void* dy;
  const void* x;
  const float* weight;
  const double* moments;
  void* dx;
  float* weight_gradient;
  float* bias_gradient;
  double* scratch;
};
void NormalizeRowsBackward(const RowNorm& norm, const RowNormBackward& tensors,
                           RunParts run);

}  // namespace convgrad

// Computes the shapes of matrix products of values: matmul and attention.
#pragma once

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// The sizes of attention(query, key, value, mask), which computes for each of
// `batch` matrices softmax(scale * query * key' + mask) * value.
struct AttentionProblem {
  int64_t batch;         // the product of all axes but the last two
  int64_t queries;       // L
  int64_t keys;          // S
  int64_t features;      // E, of a query and of a key
  int64_t out_features;  // F, of a value and of the result
  double scale;
  // If true, query i doesn't see the keys after i.
  bool causal;
};

// Returns the sizes. Requires: an attention step that InferShapes has accepted.
AttentionProblem AttentionOf(const ProgramStep& step,
                             const ProgramShapes& shapes);

}  // namespace convgrad

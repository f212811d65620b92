// Matrix products of values: matmul and attention.
#pragma once

#include "backends/core/program/operators/step_dims.h"

namespace convgrad {

// What attention(query, key, value, mask) computes: for each of `batch`
// matrices softmax(scale * query * key' + mask) * value.
struct AttentionProblem {
  int64_t batch;         // the product of all axes but the last two
  int64_t queries;       // L
  int64_t keys;          // S
  int64_t features;      // E, of a query and of a key
  int64_t out_features;  // F, of a value and of the result
  double scale;
  // Query i doesn't see the keys after i.
  bool causal;
};

// Requires: an attention step that InferShapes has taken.
AttentionProblem AttentionOf(const ProgramStep& step,
                             const ProgramShapes& shapes);

// Returns for each axis of `dims`, aligned at the last one to those of a
// row-major tensor of dims `from`, the stride in that tensor. Units: elements.
// The stride of an axis that is broadcast, or that `from` lacks, is 0.
Dims BroadcastStrides(const Dims& from, const Dims& dims);

}  // namespace convgrad

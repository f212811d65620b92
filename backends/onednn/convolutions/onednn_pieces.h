// The pieces of a partition: an operation of the contract each, and what it has
// of the whole one's tensors.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "backends/onednn/convolutions/onednn_partition.h"

namespace convgrad::onednn {

// What a piece has of a tensor: the indices [begin, begin + dims[axis]) of one
// logical axis, or all of it.
struct TensorRange {
  TensorDescriptor descriptor;  // dims as the piece sees them
  int axis = -1;                // -1: all of it
  int64_t begin = 0;

  bool is_whole() const { return axis < 0; }
};

struct Piece {
  struct PieceResult {
    size_t index;  // in the whole operation
    TensorRange range;
    bool is_summed;  // every piece gives a summand of all of it
  };

  ConvOperation operation;
  // Indexed by Operand; empty where the operation has none.
  std::array<TensorRange, kOperandCount> operands;
  std::vector<PieceResult> results;  // as in `operation`
};

// Returns the pieces, which together are the operation. Requires: `partition`
// is one of PartitionsOf(operation, threads).
std::vector<Piece> CutInto(const ConvOperation& operation,
                           const Partition& partition, int threads);

}  // namespace convgrad::onednn

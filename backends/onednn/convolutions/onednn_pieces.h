// `CutInto` returns the pieces of a partition. Each piece is an operation of
// the contract on parts of the whole operation's tensors.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "backends/onednn/convolutions/onednn_partition.h"

namespace convgrad::onednn {

// The part of a tensor that a piece uses: the indices [begin, begin +
// dims[axis]) of one logical axis, or all of it.
struct TensorRange {
  TensorDescriptor descriptor;  // dims of the part
  int axis = -1;                // -1: all of it
  int64_t begin = 0;

  bool is_whole() const { return axis < 0; }
};

struct Piece {
  struct PieceResult {
    size_t index;  // in the whole operation
    TensorRange range;
    bool is_summed;  // each piece computes an addend of the whole result
  };

  ConvOperation operation;
  // Indexed by Operand; empty if the operation has no such operand.
  std::array<TensorRange, kOperandCount> operands;
  std::vector<PieceResult> results;  // as in `operation`
};

// Returns the pieces, which together compute the operation. Requires:
// `partition` is one of PartitionsOf(operation, threads).
std::vector<Piece> CutInto(const ConvOperation& operation,
                           const Partition& partition, int threads);

}  // namespace convgrad::onednn

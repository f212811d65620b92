// Cuts an operation into pieces that single cores compute, each in its own
// caches, instead of letting the whole team share every loop of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/conv_operation.h"

namespace convgrad::onednn {

// What pieces are ranges of.
enum class CutAxis {
  kNone,            // one piece
  kBatch,           // items
  kRows,            // the first spatial axis of a pointwise convolution
  kGroups,          // groups
  kInputChannels,   // backward; every piece reads all of grad_output
  kOutputChannels,  // forward; every piece reads all of the input
};

struct Partition {
  CutAxis axis = CutAxis::kNone;
  // More than 1 so that a piece's data stay in a core's caches.
  int pieces_per_thread = 1;

  friend bool operator==(const Partition&, const Partition&) = default;
};

// Returns "none", "batch", "groups*4", ...
std::string ToString(const Partition& partition);
std::optional<Partition> ParsePartition(absl::string_view text);

// What a piece has of a tensor: the indices [begin, begin + dims[axis]) of one
// logical axis, or all of it.
struct Extract {
  TensorDescriptor descriptor;  // dims as the piece sees them
  int axis = -1;                // -1: all of it
  int64_t begin = 0;

  bool is_whole() const { return axis < 0; }
};

struct Piece {
  struct PieceResult {
    size_t index;  // in the whole operation
    Extract extract;
    bool is_summed;  // every piece gives a summand of all of it
  };

  ConvOperation operation;
  // Indexed by Operand; empty where the operation has none.
  std::array<Extract, kOperandCount> operands;
  std::vector<PieceResult> results;  // as in `operation`
};

// Returns the ways to cut `operation` into about equal pieces for `threads`
// cores, the uncut one not among them. Requires: Validate(operation).ok().
std::vector<Partition> PartitionsOf(const ConvOperation& operation,
                                    int threads);

// Returns the pieces, which together are the operation. Requires: `partition`
// is one of PartitionsOf(operation, threads).
std::vector<Piece> CutInto(const ConvOperation& operation,
                           const Partition& partition, int threads);

// Returns what a choice of partition is made for, e.g. "backward conv2d_n16_...
// f32 in=ncx out=ncx -> grad_input,grad_weight threads=2".
std::string KeyOf(const ConvOperation& operation, int threads);

}  // namespace convgrad::onednn

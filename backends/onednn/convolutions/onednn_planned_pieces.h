// Where the pieces of an operation find their tensors, and what has to be
// copied for it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/kernels/copies/reorder.h"
#include "backends/onednn/convolutions/onednn_pieces.h"
#include "backends/onednn/execution/onednn_memory_map.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {

// Offsets into an area that is laid out piece by piece.
class AreaLayout {
 public:
  int64_t Allocate(int64_t bytes) {
    const int64_t offset = size_;
    size_ += RoundUpToLine(bytes);
    return offset;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

// Where a piece finds one of its tensors.
struct PieceTensor {
  enum class Where {
    kCaller,  // at `offset` of the caller's tensor
    kShared,  // scratch that all pieces see
    kCore,    // scratch of the core, for all of its pieces
    kPiece,   // scratch of the core, for one piece at a time
  };
  Where where = Where::kCaller;
  int64_t offset = 0;  // bytes
  // Between the caller's tensor and kPiece.
  std::optional<Reorder> copy = std::nullopt;
};

// The form that a plan brings the weight to. Pieces that have plan and weight
// in common have one.
struct WeightForm {
  int64_t bytes;
  int64_t offset;      // in what the caller lends for prepared weights
  size_t first_piece;  // which puts it there
  // In scratch of the core, which makes it once for all of its pieces. None if
  // only one piece reads it: its plan has room for it.
  std::optional<int64_t> core_offset;
};

// A piece, ready to run.
struct PlannedPiece {
  std::shared_ptr<const Plan> plan;
  std::array<std::optional<PieceTensor>, kOperandCount> operands;
  std::vector<size_t> result_indices;  // in the caller's results
  std::vector<PieceTensor> results;
  int64_t scratch = 0;  // the plan's, behind the piece's tensors
  std::optional<size_t> weight_form;
};

// A tensor that every piece reads: each core converts it for itself, since
// fetching it from another core takes longer.
struct Conversion {
  Operand operand;
  Reorder reorder;
  int64_t offset;
};

// The pieces' summands of one result.
struct Sum {
  size_t index;
  int64_t count;
  float scale;
  DataType dtype;
  std::vector<int64_t> offsets;  // of the shared scratch, by piece
};

// Makes the plan of a piece, for one thread. It is run on tensors aligned to
// their elements only.
using PiecePlanner =
    std::function<absl::StatusOr<std::unique_ptr<Plan>>(const ConvOperation&)>;

// All pieces of an operation. Scratch is the shared area, then for each core
// its own.
struct PlannedPieces {
  int64_t core_bytes() const { return core.size() + piece.size(); }

  AreaLayout shared, core, piece;
  // Empty where a piece takes the weight as it is.
  AreaLayout prepared_weight;
  std::vector<WeightForm> weight_forms;
  std::vector<Conversion> conversions;
  std::vector<PlannedPiece> pieces;
  std::vector<Sum> sums;
  int64_t resident_bytes = 0;  // of all plans
};

// Requires: `partition` is one of PartitionsOf(operation, options.threads).
// Errors: those of `planner`.
absl::StatusOr<PlannedPieces> PlanPieces(const ConvOperation& operation,
                                         const Partition& partition,
                                         const ComputeOptions& options,
                                         const PiecePlanner& planner);

}  // namespace convgrad::onednn

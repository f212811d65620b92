// `PlanPieces` plans the pieces of an operation: it decides where each piece
// finds its tensors and what must be copied.
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

// Allocates offsets in an area that is laid out piece by piece.
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

// The location of one of a piece's tensors.
struct PieceTensor {
  enum class Where {
    kCaller,  // in the caller's tensor at `offset`
    kShared,  // scratch shared by all pieces
    kPiece,   // scratch of the core, for one piece at a time
  };
  Where where = Where::kCaller;
  int64_t offset = 0;  // bytes
  // The copy between the caller's tensor and kPiece.
  std::optional<Reorder> copy = std::nullopt;
};

// The form to which a plan converts the weight. Pieces with the same plan and
// weight share one.
struct WeightForm {
  int64_t bytes;
  int64_t offset;      // in the caller's memory for prepared weights
  size_t first_piece;  // the piece that writes it
  // Offset in the core's scratch; the core makes the form once for all of its
  // pieces. nullopt if only one piece reads it: that piece's plan has its own
  // buffer.
  std::optional<int64_t> core_offset;
};

// A piece that is ready to run.
struct PlannedPiece {
  std::shared_ptr<const Plan> plan;
  std::array<std::optional<PieceTensor>, kOperandCount> operands;
  std::vector<size_t> result_indices;  // in the caller's results
  std::vector<PieceTensor> results;
  int64_t scratch = 0;  // of the plan, after the piece's tensors
  std::optional<size_t> weight_form;
};

// The pieces' addends of one result.
struct Sum {
  size_t index;
  int64_t count;
  float scale;
  DataType dtype;
  std::vector<int64_t> offsets;  // in the shared scratch, by piece
};

// Makes the plan of a piece for one thread. The plan runs on tensors aligned
// only to their elements.
using PiecePlanner =
    std::function<absl::StatusOr<std::unique_ptr<Plan>>(const ConvOperation&)>;

// All pieces of an operation. Scratch consists of the shared area and one area
// per core.
struct PlannedPieces {
  int64_t core_bytes() const { return core.size() + piece.size(); }

  AreaLayout shared, core, piece;
  // Empty if a piece uses the weight unchanged.
  AreaLayout prepared_weight;
  std::vector<WeightForm> weight_forms;
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

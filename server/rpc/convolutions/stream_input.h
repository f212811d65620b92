// `StreamInput` records the bytes of a stream's operands that have come. It
// decides which frames may come next and which slices are complete.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/batch_slices.h"
#include "backends/core/convolution/conv_operation.h"
#include "proto/codec/stream_codec.h"
#include "server/rpc/convolutions/frame_coverage.h"

namespace convgrad {

// `StreamInput` is thread-compatible.
class StreamInput {
 public:
  // The slice of a piece of an operand that isn't cut into slices.
  static constexpr int64_t kNoSlice = -1;

  // By Operand: whether the session keeps it, so that no frames bring it.
  using Kept = std::array<bool, kOperandCount>;

  // `slices` are the slices of a convolution and outlive this.
  explicit StreamInput(const BatchSlices& slices, const Kept& kept = {});

  // Records a frame's bytes and returns the slice that they belong to, or
  // kNoSlice.
  // Errors: kInvalidArgument if they may not come now (OperandFrame in
  // service.proto).
  absl::StatusOr<int64_t> Accept(const OperandPiece& piece);

  // Returns the first slice that lacks bytes; the number of slices if none
  // does.
  int64_t first_incomplete() const { return first_; }
  // Returns whether all bytes of the operands that aren't cut have come.
  bool whole_operands_complete() const;

  // Returns OK if every byte has come.
  // Errors: kInvalidArgument, reason MISSING, naming the first gap.
  absl::Status CheckComplete() const;

 private:
  using Coverage = std::array<FrameCoverage, kOperandCount>;

  absl::StatusOr<int64_t> SliceOf(const OperandPiece& piece) const;
  absl::Status CheckOpen(int64_t slice, Operand which) const;
  // Expects the bytes of `slice`. Its coverage replaces that of `slice` - 2.
  void OpenSlice(int64_t slice);
  bool IsComplete(int64_t slice) const;
  // Returns the name of the first whole operand that lacks bytes; "" if there
  // is none.
  absl::string_view IncompleteWhole() const;

  const BatchSlices& slices_;
  const TensorUses uses_;  // by Operand
  const Kept kept_;
  Coverage whole_;
  // The coverage of slices `first_` and `first_` + 1, each at its number modulo
  // 2.
  std::array<Coverage, 2> open_;
  int64_t first_ = 0;
};

}  // namespace convgrad

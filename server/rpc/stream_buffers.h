// The memory of one stream: operands that aren't cut, two slices of those that
// are and of their results, and the sums.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/backend.h"
#include "backends/core/conv_operation.h"
#include "proto/payload_message.h"
#include "proto/stream_codec.h"
#include "server/memory/call_memory.h"
#include "server/scheduling/gradient_sums.h"

namespace convgrad {

// Bytes of results that gRPC may hold longer than the call lives. Members in
// the order that they go last.
struct LentResults {
  std::shared_ptr<CallMemory> memory;
  Reservation reservation;
  std::vector<Buffer> buffers;
};

// Thread-compatible.
class StreamBuffers {
 public:
  // Slices that are in memory at once.
  static constexpr int64_t kSlots = 2;

  explicit StreamBuffers(std::shared_ptr<CallMemory> memory);

  // Returns what a stream takes of the budget: everything below, scratch, a
  // frame that is being read, and what every call takes. Saturates.
  static int64_t BytesFor(const BatchSlices& slices);
  // Returns what is set aside for the scratch of one slice's job: all its
  // tensors once more, in f32.
  static int64_t ScratchBytesFor(const BatchSlices& slices);

  // Takes the buffers. `reservation` has BytesFor; what pays for results is
  // split off. `slices` outlives this. Errors: kResourceExhausted.
  absl::Status Take(const BatchSlices& slices, Reservation* reservation);

  // Copies a frame's payload to where it belongs. `slice` as StreamInput has
  // it.
  void Land(const OperandPiece& piece, int64_t slice, PayloadView payload);

  // Returns the pointers for the job of `slice`.
  RunBuffers ForJob(int64_t slice) const;

  GradientSums& sums() { return sums_; }

  // Bytes of one result that are ready to be sent.
  struct ReadyResult {
    Result which;
    ByteRange range;        // in the packed tensor
    const std::byte* data;  // of the range's first byte
  };
  // Returns the results of `slice` whose job is done. They lie in slot(slice).
  std::vector<ReadyResult> ReadyResultsOf(int64_t slice) const;
  const std::shared_ptr<LentResults>& slot(int64_t slice) const {
    return results_[slice % kSlots];
  }

  // Hands over the finished sums: appends them to `*ready` and returns what
  // they lie in.
  std::shared_ptr<LentResults> TakeTotals(Reservation* reservation,
                                          std::vector<ReadyResult>* ready);

  // Gives everything back.
  void Clear();

 private:
  using OperandBuffers = std::array<Buffer, kOperandCount>;

  absl::Status TakeOperands();
  absl::Status TakeSlot(int64_t slot, Reservation* reservation);

  const std::shared_ptr<CallMemory> memory_;
  const BatchSlices* slices_ = nullptr;
  OperandBuffers whole_;
  std::array<OperandBuffers, kSlots> operands_;
  // By result of the operation; empty for those that aren't cut.
  std::array<std::shared_ptr<LentResults>, kSlots> results_;
  GradientSums sums_;
};

}  // namespace convgrad

// `SlicedTensors` connects the tensors of an operation that is computed in
// slices of the batch to memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/backend.h"
#include "backends/core/batch_slices.h"
#include "server/memory/lent_bytes.h"
#include "server/memory/slice_sums.h"
#include "server/memory/tensor_place.h"

namespace convgrad {

// A tensor with a batch is either whole in memory, so that each slice is a
// window onto it, or has buffers for kSlots slices, which the slices use
// alternately. Results without a batch are sums over the slices (SliceSums).
//
// Thread-compatible.
class SlicedTensors {
 public:
  // Slices that have buffers at the same time.
  static constexpr int64_t kSlots = 2;

  // Binds to windows onto `whole`, the buffers of the whole operation. Takes
  // the bytes of sums, and of aligned copies of unaligned slices, from the
  // budget. `slices` and `memory` outlive this.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED or BUSY.
  absl::Status BindWindows(const BatchSlices& slices, const RunBuffers& whole,
                           CallMemory* memory);

  // Binds to places for kSlots slices, and for each operand without a batch.
  // What `places` says is in memory is usable there, and gets windows. No place
  // is a message. `reservation` has SlotBytes; what pays for results is split
  // off. `slices` outlives this. Errors: kResourceExhausted.
  absl::Status BindSlots(const BatchSlices& slices, TensorPlaces places,
                         const std::shared_ptr<CallMemory>& memory,
                         Reservation* reservation);
  // Returns the bytes that BindSlots takes; saturates.
  static int64_t SlotBytes(const BatchSlices& slices,
                           const TensorPlaces& places);

  // Returns where the byte at `offset` in the packed operand at `position`
  // lies. It is one of `slice`, if the operand has a batch.
  std::byte* OperandByte(size_t position, int64_t slice, int64_t offset) const;

  // Returns the buffers of `slice`, without scratch. Slices are begun in order;
  // one that didn't run may be begun again.
  RunBuffers Begin(int64_t slice);
  // To be called once for each slice, when it has run. After the last one the
  // results are complete: those in memory there, with their addends, the sums
  // of slots in TakeTotals.
  void End(int64_t slice);

  // One result, or a slice of it, that is ready to leave.
  struct ReadyResult {
    size_t position;
    ByteRange range;  // in the packed tensor
    const std::byte* data;
  };
  // Returns the results of `slice` that lie in slot(slice).
  std::vector<ReadyResult> ReadyResultsOf(int64_t slice) const;
  const std::shared_ptr<LentBuffers>& slot(int64_t slice) const {
    return result_slots_[slice % kSlots];
  }
  // Appends the sums to `*ready` and returns the buffers that hold them.
  std::shared_ptr<LentBuffers> TakeTotals(
      const std::shared_ptr<CallMemory>& memory, Reservation* reservation,
      std::vector<ReadyResult>* ready);

  // Frees everything.
  void Clear() { *this = SlicedTensors(); }

 private:
  // Where one tensor lies.
  struct Binding {
    TensorUse use;
    // The whole tensor, or nothing.
    TensorPlace place;
    // Of single slices; used in turn if there are several. Empty if slices are
    // used where they lie in the whole.
    std::vector<std::byte*> slots;
  };

  void SetBindings(const BatchSlices& slices, TensorPlaces places);
  // Takes a copy of one slice for each tensor in memory whose slices aren't
  // aligned.
  absl::Status BindCopies(BufferPool* pool);
  // Completes the results that are in memory.
  void Finish();
  ByteRange RangeOf(const Binding& binding, int64_t slice) const;
  std::byte* PlaceOf(const Binding& binding, int64_t slice) const;
  absl::StatusOr<std::byte*> Take(int64_t size, BufferPool* pool);
  absl::Status BindOperandSlots(BufferPool* pool);
  absl::StatusOr<std::shared_ptr<LentBuffers>> BindResultSlot(
      const std::shared_ptr<CallMemory>& memory, Reservation* reservation);

  const BatchSlices* slices_ = nullptr;
  std::vector<Binding> operands_;
  std::vector<Binding> results_;
  Reservation reservation_;
  std::vector<Buffer> buffers_;
  std::array<std::shared_ptr<LentBuffers>, kSlots> result_slots_;
  SliceSums sums_;
  // After the last slice: those that aren't in memory.
  std::vector<SliceSums::Total> totals_;
};

}  // namespace convgrad

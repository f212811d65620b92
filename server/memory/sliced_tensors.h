// `SlicedTensors` connects the tensors of an operation that the server computes
// in slices of the batch to memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/backend.h"
#include "backends/core/batch_slices.h"
#include "server/memory/shared_bytes.h"
#include "server/memory/slice_sums.h"
#include "server/memory/tensor_place.h"

namespace convgrad {

// A tensor with a batch axis has one of two forms. If it is whole in memory,
// each slice is a window onto it. Otherwise it has buffers for kSlots slices,
// which the slices use alternately. Results without a batch axis are sums over
// the slices (SliceSums).
//
// Thread-compatible.
class SlicedTensors {
 public:
  // The number of slices that have buffers at the same time.
  static constexpr int64_t kSlots = 2;

  // Binds the tensors to windows onto `whole`, the buffers of the whole
  // operation. Takes the bytes of sums, and of aligned copies of unaligned
  // slices, from the budget for `holder`. `slices` and `memory` outlive this.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED or BUSY.
  absl::Status BindWindows(const BatchSlices& slices, const RunBuffers& whole,
                           const MemoryBudget::Holder& holder,
                           CallMemory* memory);
  // Returns the bytes that BindWindows took.
  int64_t reserved_bytes() const { return reservation_.bytes(); }

  // Binds the tensors to buffers for kSlots slices, and for each operand
  // without a batch axis. Tensors that `places` has in memory are usable there
  // and get windows. No place is a message. `reservation` has SlotBytes; the
  // bytes of results are split off. `slices` outlives this.
  // Errors: kResourceExhausted.
  absl::Status BindSlots(const BatchSlices& slices, TensorPlaces places,
                         const std::shared_ptr<CallMemory>& memory,
                         Reservation* reservation);
  // Returns the bytes that the tensors take if they are bound to `places`.
  // Saturates.
  static int64_t SlotBytes(const BatchSlices& slices,
                           const TensorPlaces& places);

  // Returns the address of the byte at `offset` in the packed operand at
  // `position`. If the operand has a batch axis, the byte belongs to `slice`.
  std::byte* OperandByte(size_t position, int64_t slice, int64_t offset) const;

  // Returns the buffers of `slice`, without scratch. Slices begin in order; a
  // slice that didn't run may begin again.
  RunBuffers Begin(int64_t slice);
  // Ends a slice. Call it once for each slice, when it has run. After the last
  // slice the results are complete: results in memory are there, with their
  // addends; TakeTotals returns the other sums.
  void End(int64_t slice);

  // One result, or a slice of it, that is ready to be sent.
  struct ReadyResult {
    size_t position;
    ByteRange range;  // In the packed tensor.
    const std::byte* data;
  };
  // Returns the results of `slice` whose bytes are in slot(slice).
  std::vector<ReadyResult> ReadyResultsOf(int64_t slice) const;
  const std::shared_ptr<ReservedBuffers>& slot(int64_t slice) const {
    return result_slots_[slice % kSlots];
  }
  // Appends the sums to `*ready` and returns the buffers that hold them.
  std::shared_ptr<ReservedBuffers> TakeTotals(
      const std::shared_ptr<CallMemory>& memory, Reservation* reservation,
      std::vector<ReadyResult>* ready);

  // Frees everything.
  void Clear() { *this = SlicedTensors(); }

 private:
  // The memory of one tensor.
  struct Binding {
    TensorUse use;
    // The whole tensor; unset if only slices have memory.
    TensorPlace place;
    // Buffers of single slices, used in turn if there are several. Empty if a
    // slice is used in place in the whole tensor.
    std::vector<std::byte*> slots;
  };

  void SetBindings(const BatchSlices& slices, TensorPlaces places);
  // Takes a buffer for one slice of each tensor in memory whose slices aren't
  // aligned.
  absl::Status BindCopies(BufferPool* pool);
  // Completes the results that are in memory.
  void Finish();
  ByteRange RangeOf(const Binding& binding, int64_t slice) const;
  std::byte* PlaceOf(const Binding& binding, int64_t slice) const;
  absl::StatusOr<std::byte*> Take(int64_t size, BufferPool* pool);
  absl::Status BindOperandSlots(BufferPool* pool);
  absl::StatusOr<std::shared_ptr<ReservedBuffers>> BindResultSlot(
      const std::shared_ptr<CallMemory>& memory, Reservation* reservation);

  const BatchSlices* slices_ = nullptr;
  std::vector<Binding> operands_;
  std::vector<Binding> results_;
  Reservation reservation_;
  std::vector<Buffer> buffers_;
  std::array<std::shared_ptr<ReservedBuffers>, kSlots> result_slots_;
  SliceSums sums_;
  // Sums that aren't in memory; set after the last slice.
  std::vector<SliceSums::Total> totals_;
};

}  // namespace convgrad

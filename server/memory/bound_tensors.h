// `BoundTensors` connects the tensors of one operation to memory. It copies
// each operand and each result at most once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "server/memory/call_memory.h"
#include "server/memory/lent_bytes.h"
#include "server/memory/tensor_place.h"

namespace convgrad {

// Thread-compatible.
class BoundTensors {
 public:
  explicit BoundTensors(std::shared_ptr<CallMemory> memory);

  // Stores the places of the tensors that `operation` has and takes memory for
  // its results. A backend uses memory in place where it can. `reservation`
  // covers the messages. Bind raises it if operands and results need more, and
  // leaves it at their size. It must outlive the operands.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED if that can never fit the
  // budget, BUSY if it doesn't now.
  absl::Status Bind(const Operation& operation, TensorPlaces places,
                    Reservation* reservation);

  // Copies with `threads` threads the operands that a backend can't use in
  // place, frees the messages, and returns the buffers of a run, without
  // scratch. An operand is copied into the form that `plan` needs if no other
  // operand shares its bytes and the budget has room; a null `plan` needs none.
  // A second call returns the same buffers. Requires: a thread that may run
  // plans, or `threads` == 1.
  // Errors: kResourceExhausted, reason BUSY.
  absl::StatusOr<RunBuffers> BringIn(const Plan* plan, const Backend& backend,
                                     int threads);

  // Copies results to places that the backend couldn't write, and adds the
  // addends of sums. Requires: the results are complete; the thread of BringIn.
  void BringOut(const Backend& backend, int threads);

  // Returns whether no client can write to the operands at these positions.
  bool AreConstant(absl::Span<const size_t> positions) const;
  // Returns their ids (TensorPlace::constant_id), nothing if one has none.
  std::vector<uint64_t> ConstantIds(absl::Span<const size_t> positions) const;
  int64_t copied_bytes() const { return copied_bytes_; }
  // Of the results that a client gets, by message or in its region.
  int64_t sent_bytes() const { return sent_bytes_; }
  // Of the results that TakeResults will hand over. Saturates.
  int64_t lent_bytes() const;

  // Frees the operands and returns the results that aren't in memory already,
  // in order. Buffer and budget are freed with the last copy of their owner.
  // `reservation` is empty afterwards.
  std::vector<LentBytes> TakeResults(Reservation* reservation);

  // Frees everything.
  void Clear();

 private:
  // Bytes that have to be copied before a run.
  struct Arrival {
    std::shared_ptr<ScatteredBytes> bytes;
    std::vector<size_t> operands;  // that read them
    Buffer copy;
  };
  struct BoundResult {
    TensorPlace place;
    int64_t size;
    Buffer buffer;  // empty where `place` is usable
  };

  void KeepOperand(size_t position, const TensorDescriptor& tensor,
                   TensorPlace place);
  void KeepResult(int64_t size, TensorPlace place);
  // Has `*reservation` cover operands and results, and no more than that.
  absl::Status Adjust(Reservation* reservation) const;
  absl::Status Copy(const OperandGather* gather, const Backend& backend,
                    int threads, Arrival* arrival);
  // Returns `gather`, or null if there is no memory for what it makes.
  const OperandGather* IfAffordable(const OperandGather* gather, int64_t size);

  const std::shared_ptr<CallMemory> memory_;
  Reservation* reservation_ = nullptr;
  std::vector<Arrival> arrivals_;
  std::vector<BoundResult> results_;
  RunBuffers run_buffers_;
  // By operand; null for those that a run doesn't use where they are.
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<uint64_t> constant_ids_;
  int64_t copied_bytes_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace convgrad

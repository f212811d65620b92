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
#include "server/memory/shared_bytes.h"
#include "server/memory/tensor_place.h"

namespace convgrad {

// `BoundTensors` is thread-compatible.
class BoundTensors {
 public:
  explicit BoundTensors(std::shared_ptr<CallMemory> memory);

  // Stores the places of the tensors of `operation` and takes memory for its
  // results. A backend uses memory in place where it can. `reservation` covers
  // the messages. Bind grows it if operands and results need more, and leaves
  // it at their size. It must outlive the operands.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED if the tensors never fit
  // the budget, BUSY if they don't fit now.
  absl::Status Bind(const Operation& operation, TensorPlaces places,
                    Reservation* reservation);

  // Copies the operands that a backend can't use in place, with `threads`
  // threads, frees the messages, and returns the buffers of a run, without
  // scratch. A second call returns the same buffers. Requires: a thread that
  // may run plans, or `threads` == 1.
  // Errors: kResourceExhausted, reason BUSY.
  absl::StatusOr<RunBuffers> BringIn(const Backend& backend, int threads);

  // Copies results to places that the backend couldn't write, and adds the
  // addends of sums. Requires: the results are complete; the thread of BringIn.
  void BringOut(const Backend& backend, int threads);

  // Returns whether no client can write to the operands at these positions.
  bool AreConstant(absl::Span<const size_t> positions) const;
  // Returns the ids of these operands (TensorPlace::constant_id); an empty list
  // if one has no id.
  std::vector<uint64_t> ConstantIds(absl::Span<const size_t> positions) const;
  int64_t copied_bytes() const { return copied_bytes_; }
  // Bytes of the results that a client receives, by message or in its region.
  int64_t sent_bytes() const { return sent_bytes_; }
  // Returns the bytes of the results that TakeResults will return. Saturates.
  int64_t payload_bytes() const;

  // Frees the operands and returns, in order, the results that the response
  // carries. Buffer and budget are freed with the last copy of their owner. The
  // reservation of Bind is empty afterwards. Requires: Bind was called.
  std::vector<SharedBytes> TakeResults();

  // Frees everything.
  void Clear();

 private:
  // Bytes that are copied before a run.
  struct Arrival {
    std::shared_ptr<ScatteredBytes> bytes;
    std::vector<size_t> operands;  // The operands that read them.
    Buffer copy;
  };
  struct BoundResult {
    TensorPlace place;
    int64_t size;
    Buffer buffer;  // Empty if `place` is usable.
  };

  void KeepOperand(size_t position, const TensorDescriptor& tensor,
                   TensorPlace place);

  const std::shared_ptr<CallMemory> memory_;
  Reservation* reservation_ = nullptr;  // Of Bind.
  std::vector<Arrival> arrivals_;
  std::vector<BoundResult> results_;
  RunBuffers run_buffers_;
  // By operand; null for operands that a run doesn't use in place.
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<uint64_t> constant_ids_;
  int64_t copied_bytes_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace convgrad

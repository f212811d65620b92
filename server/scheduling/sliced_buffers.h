// The buffers of an operation that is computed in slices: windows onto the
// whole operation's, and what has to be beside them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/backend.h"
#include "backends/core/batch_slices.h"
#include "backends/core/conv_operation.h"
#include "server/memory/call_memory.h"
#include "server/scheduling/gradient_sums.h"

namespace convgrad {

// Thread-compatible.
class SlicedBuffers {
 public:
  // Takes what `slices` need beside `whole`, the buffers of their operation:
  // sums, and aligned copies of those tensors whose slices aren't aligned.
  // `slices` and `memory` outlive this.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED or BUSY.
  absl::Status Take(const BatchSlices& slices, RunBuffers whole,
                    CallMemory* memory);

  // Returns the buffers of `slice`, without scratch. Each slice is begun and
  // ended once, in order.
  RunBuffers Begin(int64_t slice);
  // To be called when `slice` has run. With the last one the operation's
  // results are complete.
  void End(int64_t slice);

 private:
  // A tensor of the operation, in the caller's memory.
  struct Place {
    const TensorDescriptor* tensor = nullptr;  // null: not cut
    // Of a slice; empty if slices can be used where they are.
    Buffer copy;
  };

  int64_t CapacityFor(const BatchSlices& slices) const;
  absl::Status TakeCopy(const TensorDescriptor& tensor, Place* place);

  const BatchSlices* slices_ = nullptr;
  RunBuffers whole_;
  CallMemory* memory_ = nullptr;
  Reservation reservation_;
  std::array<Place, kOperandCount> operands_;
  std::vector<Place> results_;
  GradientSums sums_;
};

}  // namespace convgrad

// `SliceSums` adds the results of a sliced operation that have no batch axis.
// It sums them in f32 in the order of the slices. Then it scales them, rounds
// them once, and writes the layout that the request asks for.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/batch_slices.h"
#include "server/memory/buffer_pool.h"

namespace convgrad {

// `SliceSums` is thread-compatible. It is empty if every result has a batch
// axis.
class SliceSums {
 public:
  // Returns the bytes that Take takes from the pool. Saturates.
  static int64_t CapacityFor(const BatchSlices& slices);

  // Takes the buffers. `slices` outlives them.
  // Errors: kResourceExhausted.
  absl::Status Take(const BatchSlices& slices, BufferPool* pool);

  // Returns the memory where `slice` writes its addend of the result at
  // `position`; null for a result with a batch axis.
  void* AddendFor(size_t position, int64_t slice) const;

  // Adds the addends of `slice`. Call it once for each slice, in order. The
  // last call makes the results.
  void Add(int64_t slice);

  struct Total {
    size_t position;  // In the operation's results.
    Buffer buffer;    // At least as large as the result.
  };
  // Returns the results. Requires: the last Add.
  std::vector<Total> TakeTotals();

 private:
  struct Sum {
    size_t position;
    TensorUse result;
    TensorDescriptor addend;
    Buffer sum;
    // Holds an addend, and at the end the result. Its size is the larger of
    // both.
    Buffer spare;
  };

  static std::vector<Sum> SumsOf(const BatchSlices& slices);
  static void Finish(Sum* sum);

  int64_t slices_ = 0;
  std::vector<Sum> sums_;
};

}  // namespace convgrad

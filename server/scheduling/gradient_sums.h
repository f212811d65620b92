// The results of a sliced operation that belong to no slice: summed over the
// slices in f32, in their order, then scaled, rounded once and laid out as
// asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/batch_slices.h"
#include "server/memory/buffer_pool.h"

namespace convgrad {

// Thread-compatible. Empty if every result is cut.
class GradientSums {
 public:
  // Returns the bytes that Take takes from the pool; saturates.
  static int64_t CapacityFor(const BatchSlices& slices);

  // Takes the buffers. Errors: kResourceExhausted.
  absl::Status Take(const BatchSlices& slices, BufferPool* pool);

  // Returns where `slice` leaves its addend of the result at `index` of the
  // operation; null for a result that is cut.
  void* AddendFor(size_t index, int64_t slice) const;

  // Adds what `slice` left. To be called once for each, in order.
  void Add(int64_t slice);

  // Makes the results of the sums. To be called once, after the last Add.
  void Finish();

  struct Total {
    size_t index;   // in the operation's results
    Buffer buffer;  // at least as large as the result
  };
  // Hands over what Finish made.
  std::vector<Total> TakeTotals();

  // Gives everything back.
  void Clear() { sums_.clear(); }

 private:
  struct Sum {
    size_t index;
    ResultRequest request;
    TensorDescriptor addend;
    Buffer sum;
    // An addend, and in the end the result: the larger of both.
    Buffer spare;
  };

  std::vector<Sum> sums_;
};

}  // namespace convgrad

// `DirectOnednn` calls oneDNN in-process as oneDNN's examples do, without code
// of the backend. Its time is the lower bound of a call. It supports
// convolutions with 1 to 3 spatial axes (transposed ones as deconvolutions),
// row-major layouts, f32 and bf16.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad::bench {

enum class DirectFormat { kAny, kNXC, kNCX };

// The passes of one operation, prepared on random data. Owned by one thread,
// whose OpenMP team it uses.
class DirectOnednn {
 public:
  // Returns the passes of `operation`. Forward: output, with a per-channel bias
  // if the problem has one. Backward: the gradients that the operation asks
  // for, of input, weight and bias. Returns nullptr if the library has only a
  // reference implementation in `format`.
  static std::unique_ptr<DirectOnednn> Make(const ConvOperation& operation,
                                            DirectFormat format, int threads);
  virtual ~DirectOnednn() = default;

  struct Times {
    absl::Duration reorder;
    absl::Duration compute;
  };
  // Runs all passes once: the primitives, and the reorders from and to the
  // operation's layouts, each tensor once for each layout needed.
  virtual Times Run() = 0;
};

}  // namespace convgrad::bench

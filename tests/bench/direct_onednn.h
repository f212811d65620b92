// The floor: oneDNN called in-process as its examples do it, without a line of
// the backend's. For convolutions with 1 to 3 spatial axes, transposed ones as
// deconvolutions; row-major layouts, f32 and bf16.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad::bench {

enum class DirectFormat { kAny, kNXC, kNCX };

// The passes of one operation, prepared on random data of its own. Owned by one
// thread, whose OpenMP team it uses.
class DirectOnednn {
 public:
  // Forward: output, with a per-channel bias if the problem has one. Backward:
  // grad_input, grad_weight and grad_bias, as far as they are asked for.
  // Returns nullptr where the library has no implementation in `format` but
  // loops.
  static std::unique_ptr<DirectOnednn> Make(const ConvOperation& operation,
                                            DirectFormat format, int threads);
  virtual ~DirectOnednn() = default;

  struct Times {
    absl::Duration reorder;
    absl::Duration compute;
  };
  // Runs all passes once: reorders from and to the operation's layouts, each
  // tensor once per layout wanted, and the primitives.
  virtual Times Run() = 0;
};

}  // namespace convgrad::bench

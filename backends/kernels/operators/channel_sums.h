// `SumTerms` sums over images and positions for each channel, for the
// statistics of a batch_norm, its gradients and those of broadcast operands and
// biases.
#pragma once

#include <cstdint>

#include "backends/kernels/operators/channel_blocks.h"
#include "backends/kernels/operators/channel_scale.h"

namespace convgrad {

// The terms of the sums. Arrays have padded_channels() elements, zero for
// padding.
struct ChannelTerms {
  const void* a;
  // Null: the second factor is `a` minus its center (squares); else it is `b`
  // minus its center.
  const void* b = nullptr;
  const double* center = nullptr;
  // If not null, `a` is masked by an activation's gradient. The activation's
  // operand is the result of ScaleChannels on `b` with these numbers.
  const ChannelScale* numbers = nullptr;
  Activation activation = Activation::kNone;
  // If not null, an element of `a` counts only where !(mask <= 0). `more`,
  // unless null, is added to `a` first, and the sum is rounded. The elements
  // that count are written to `masked`, which may be `a` or `more`.
  const void* mask = nullptr;
  const void* more = nullptr;
  void* masked = nullptr;
};

// Returns how many doubles of scratch SumTerms needs for `sums` sums of each
// channel: 2, or 1 without products.
int64_t SumScratch(const ChannelBlocks& blocks, int sums = 2);

// Writes the sums S in double. For squares: sum[c] = S(a - center), product[c]
// = S((a - center)^2). Otherwise: sum[c] = S(a), product[c] = S(a * (b -
// center)). If `product` is null, only `a` is read, and may be kF16.
// Thread-safe.
void SumTerms(const ChannelBlocks& blocks, const ChannelTerms& terms,
              double* scratch, RunParts run, double* sum, double* product);

}  // namespace convgrad

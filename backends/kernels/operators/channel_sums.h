// Sums over images and positions, by channel: what the statistics of a
// batch_norm, its gradients and those of broadcast operands have in common.
#pragma once

#include <cstdint>

#include "backends/kernels/operators/channel_blocks.h"
#include "backends/kernels/operators/channel_scale.h"

namespace convgrad {

// What is summed. Arrays have padded_channels() elements, zero for padding.
struct ChannelTerms {
  const void* a;
  // null: `a` itself, less its center (squares); else `b` less its center.
  const void* b = nullptr;
  const double* center;
  // null, or: `a` is masked by the gradient of this activation of what
  // ScaleChannels makes of `b` with these numbers.
  const ChannelScale* numbers = nullptr;
  Activation activation = Activation::kNone;
  // null, or: `a`, to which `more` is added first, unless that is null, and
  // which is rounded then, counts where !(mask <= 0); what counts is written to
  // `masked`, which may be `a` or `more`.
  const void* mask = nullptr;
  const void* more = nullptr;
  void* masked = nullptr;
};

// Returns how many doubles of scratch SumTerms needs.
int64_t SumScratch(const ChannelBlocks& blocks);

// Writes, in double, of squares: sum[c] = S(a - center), product[c] =
// S((a - center)^2); else sum[c] = S(a), product[c] = S(a * (b - center)).
// Thread-safe.
void SumTerms(const ChannelBlocks& blocks, const ChannelTerms& terms,
              double* scratch, RunParts run, double* sum, double* product);

}  // namespace convgrad

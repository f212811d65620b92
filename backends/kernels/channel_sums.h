// Sums over images and positions, by channel: what the statistics of a
// batch_norm, its gradients and those of broadcast operands have in common.
#pragma once

#include <cstdint>

#include "backends/kernels/channel_blocks.h"

namespace convgrad {

// What is summed. Arrays have padded_channels() elements, zero for padding.
struct ChannelTerms {
  const void* a;
  // null: `a` itself, less its center (squares); else `b` less its center.
  const void* b = nullptr;
  const void* mask = nullptr;  // null, or: a counts where !(mask <= 0)
  const double* center;
};

// Returns how many doubles of scratch SumTerms needs.
int64_t SumScratch(const ChannelBlocks& blocks);

// Writes, in double, of squares: sum[c] = S(a - center), product[c] =
// S((a - center)^2); else sum[c] = S(a), product[c] = S(a * (b - center)).
// Thread-safe.
void SumTerms(const ChannelBlocks& blocks, const ChannelTerms& terms,
              double* scratch, RunParts run, double* sum, double* product);

}  // namespace convgrad

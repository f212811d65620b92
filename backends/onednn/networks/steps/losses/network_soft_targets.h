// `RunSoftCrossEntropy` computes cross_entropy of probabilities. The forward
// also computes the gradient of the logits, because it has the softmax.
#pragma once

#include "backends/onednn/networks/steps/losses/network_cross_entropy.h"

namespace convgrad::onednn {

// Writes the loss, the logarithms of the sums, and the gradient of the logits
// if it has a buffer.
void RunSoftCrossEntropy(const CrossEntropyShape& shape,
                         const CrossEntropyBuffers& buffers,
                         const RunContext& context);

// Writes the gradient of the target to `target_gradient`, times the loss's own
// gradient, `loss_gradient`. Requires: RunSoftCrossEntropy has run.
void RunTargetGradient(const CrossEntropyShape& shape,
                       const CrossEntropyBuffers& buffers,
                       BufferId loss_gradient, BufferId target_gradient,
                       const RunContext& context);

}  // namespace convgrad::onednn

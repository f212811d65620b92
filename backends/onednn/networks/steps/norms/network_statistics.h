// `AddStatistics` provides the statistics with which a batch_norm normalizes.
#pragma once

#include "backends/core/program/program.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Doubles, padded_channels() each. The variance is the biased one.
struct NormStatistics {
  BufferId mean, variance;
};

// Appends the steps that compute the statistics. In training these are the
// batch's, and the steps also update the running ones by PyTorch's formulas.
// Otherwise they are the running ones.
NormStatistics AddStatistics(const ProgramStep& step, const NetworkTensor& x,
                             NetworkBuilder* builder);

}  // namespace convgrad::onednn

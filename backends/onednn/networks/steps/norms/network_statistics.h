// The statistics that a batch_norm normalizes with.
#pragma once

#include "backends/core/program/program.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Doubles, padded_channels() each. The variance is the biased one.
struct NormStatistics {
  BufferId mean, variance;
};

// Appends the steps that find the statistics: in training those of the batch,
// which also update the running ones by PyTorch's formulas; else the running
// ones.
NormStatistics AddStatistics(const ProgramStep& step, const NetworkTensor& x,
                             NetworkBuilder* builder);

}  // namespace convgrad::onednn

// `AddFoldedNorm` reduces a batch_norm of running statistics after a
// convolution to a scale and a shift.
#pragma once

#include <string>

#include "backends/core/program/program.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// One f32 number for each channel.
struct FoldedNorm {
  BufferId scale = kNoBuffer;
  BufferId shift = kNoBuffer;
};

// Appends steps that compute the scale and the shift, which includes the
// convolution's bias ("": none). The plan repeats the run without fusion if
// they aren't safe to use.
FoldedNorm AddFoldedNorm(const ProgramStep& norm, const std::string& bias_name,
                         NetworkBuilder* builder);

}  // namespace convgrad::onednn

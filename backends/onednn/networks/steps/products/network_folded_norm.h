// A batch_norm of running statistics behind a convolution: a scale and a shift.
#pragma once

#include <string>

#include "backends/core/program/program.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// f32, one for each channel.
struct FoldedNorm {
  BufferId scale = kNoBuffer;
  BufferId shift = kNoBuffer;
};

// Appends what finds the scale, and the shift that has the convolution's bias
// in it ("": none). The run is done again where they aren't safe to use.
FoldedNorm AddFoldedNorm(const ProgramStep& norm, const std::string& bias_name,
                         NetworkBuilder* builder);

}  // namespace convgrad::onednn

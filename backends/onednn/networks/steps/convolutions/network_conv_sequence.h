// Computes convolutions along one axis by kernels of ours where the library has
// only matrix products of copies (its `gemm`), or plain loops: long or dilated
// kernels, and depthwise ones.
#pragma once

#include "absl/strings/string_view.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/steps/convolutions/network_fast_pass.h"

namespace convgrad::onednn {

// Returns whether AddSequencePass is faster than the library. The tensors of
// `pass` are those that the pass reads and writes; their buffers don't matter.
// Throws dnnl::error.
bool IsFastAsSequence(const FastPass& pass);

// Appends the pass. Requires: IsFastAsSequence.
void AddSequencePass(const FastPass& pass, absl::string_view kind,
                     Schedule* schedule);

}  // namespace convgrad::onednn

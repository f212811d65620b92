// `AddLibraryPass` computes a pass with a primitive of the library and the
// copies that it needs.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "backends/onednn/convolutions/onednn_tensor_copies.h"
#include "backends/onednn/library/onednn_candidates.h"

namespace convgrad::onednn {

// A pass of the lowered problem and the locations of its tensors. It writes the
// tensor that is its result and reads the others.
struct PlacedPass {
  Pass pass = Pass::kForward;
  Tensor data, weight, out;
  // In a forward pass, the bias to add: f32, one number per channel. In a
  // weight pass by our kernels, where to write the bias gradient. nullopt:
  // none.
  std::optional<Tensor> bias;
  Finish finish;  // the remaining work after the pass

  Tensor& tensor(Role role) {
    return role == Role::kData ? data : role == Role::kWeight ? weight : out;
  }
};

// Returns the properties by which an implementation is chosen. `operands` is
// the dtype of the operation. `shares` is true if another pass reads the same
// gradient.
PassSpec SpecOf(const PlacedPass& pass, const Lowering& lowering,
                const ComputeOptions& options, DataType operands, bool shares);

// Appends the steps that compute the pass with `chosen`. Only a forward may
// have a bias.
// Errors: kInternal.
absl::Status AddLibraryPass(const PlacedPass& pass, const Lowering& lowering,
                            const Candidate& chosen, TensorCopies* copies,
                            Schedule* schedule);

}  // namespace convgrad::onednn

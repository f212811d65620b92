// One pass as a primitive of the library, with the copies that it needs.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "backends/onednn/convolutions/onednn_tensor_copies.h"
#include "backends/onednn/library/onednn_candidates.h"

namespace convgrad::onednn {

// A pass of the lowered problem with the places of its tensors: it writes the
// one that is its result and reads the others.
struct PlacedPass {
  Pass pass = Pass::kForward;
  Tensor data, weight, out;
  // What a forward adds, f32 and one number per channel; where a pass for the
  // weight also puts the bias's gradient. None: it does neither.
  std::optional<Tensor> bias;
  Finish finish;  // what is left to do then

  Tensor& tensor(Role role) {
    return role == Role::kData ? data : role == Role::kWeight ? weight : out;
  }
};

// Returns what ways to compute the pass are chosen by. `operands` is the dtype
// of the operation; `shares`: another pass reads the same gradient.
PassSpec SpecOf(const PlacedPass& pass, const Lowering& lowering,
                const ComputeOptions& options, DataType operands, bool shares);

// Appends the steps that compute the pass as `chosen` does.
// Errors: kInternal.
absl::Status AddLibraryPass(const PlacedPass& pass, const Lowering& lowering,
                            const Candidate& chosen, TensorCopies* copies,
                            PlanBuilder* builder);

}  // namespace convgrad::onednn

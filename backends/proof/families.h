// `ProveFamilies` proves families of operations before the server reports
// ready.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "backends/proof/proven_backend.h"

namespace convgrad {

struct Family {
  std::string name;  // e.g. "transposed backward NXC/OXI", whatever the dtype
  ConvOperation operation;
};

// Returns a small operation of each family:
// * f32, bf16 and f16, ordinary and transposed, in each set of layouts: forward
//   alone, with bias, and with bias, residual and ReLU; all four gradients with
//   a ReLU;
// * forward and backward of linear, 1-D, 3-D, depthwise, grouped and strided
//   pointwise problems, and of channels that don't fill vectors.
std::vector<Family> Families();

struct FamilyProof {
  std::string name;
  DataType dtype;
  Remedy remedy;
};

struct ProofRun {
  // In the order of Families(), then of ProgramFamilies().
  std::vector<FamilyProof> families;
  absl::Duration elapsed;
};

// Proves these families and then the operators of networks (ProgramFamilies),
// as far as `backend` supports them, on this thread with a team of `threads`.
// Stops when `give_up` returns true.
ProofRun ProveFamilies(const ProvenBackend& backend, int threads,
                       const std::function<bool()>& give_up);

}  // namespace convgrad

// The families of operations that a server proves before it says that it is
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

// Returns a small operation of each family: f32, bf16 and f16, forward alone,
// with bias, with bias, residual and ReLU, and all four gradients under a ReLU,
// ordinary and transposed, in each set of layouts; and forward and backward of
// linear, 1-D, 3-D, depthwise, grouped and strided pointwise problems, and of
// channels that fill no vectors.
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

// Proves them and then the operators of networks (ProgramFamilies) on this
// thread with a team of `threads`, as far as `backend` supports them, until
// `give_up` says so.
ProofRun ProveFamilies(const ProvenBackend& backend, int threads,
                       const std::function<bool()>& give_up);

}  // namespace convgrad

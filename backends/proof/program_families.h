// Provides small programs, with one operator each, that prove networks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"

namespace convgrad {

struct ProgramFamily {
  std::string name;  // e.g. "upsample bilinear"
  Operator op;
  std::shared_ptr<const ProgramOperation> operation;
};

// Returns for each operator and compute dtype one or more training runs of a
// small program: the operator's forward, its gradients, and a loss.
std::vector<ProgramFamily> ProgramFamilies();

// Returns the name of networks with `op` in reports of failed proofs, e.g.
// "bf16 upsample of networks".
std::string FamilyOf(Operator op, DataType compute_dtype);

// Runs `plan` and the reference's on the same small numbers. Returns whether
// all results agree within 1e-4 (f32) or 1/16 (bf16) of the largest magnitude
// of the reference's result: enough to tell a wrong tap, channel, mask or
// statistic from rounding. Returns false if the plan fails to run. Scratch and
// results begin as NaN. To be called on a thread that the plan may run on.
// Requires: `plan` is of `operation`; the reference supports it.
// Errors: those of the reference.
absl::StatusOr<bool> AgreesWithReference(const ProgramOperation& operation,
                                         const Plan& plan,
                                         const Backend& reference);

}  // namespace convgrad

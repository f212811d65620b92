// Provides small programs, with one operator each, that prove networks.
#pragma once

#include <memory>
#include <string>
#include <vector>

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

}  // namespace convgrad

// `CheckNetwork` checks whether this folder can plan an operation on a program.
#pragma once

#include "absl/status/status.h"
#include "backends/core/program/program_operation.h"

namespace convgrad::onednn {

// Returns OK if MakeNetworkPlan supports all of the operation's steps, as far
// as that is known without asking the library. Fast.
// Errors: kUnimplemented naming the step and the operator, dtype or value.
absl::Status CheckNetwork(const ProgramOperation& operation);

}  // namespace convgrad::onednn

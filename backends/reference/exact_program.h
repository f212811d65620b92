// A program's definition on doubles: what the reference backend stores, and
// what tests measure against.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "backends/core/program/program_operation.h"
#include "backends/reference/program_step_data.h"

namespace convgrad {

// By name: of inputs, parameters and results, or of their gradients.
using NamedValues = std::map<std::string, Values>;

// Computes every step. Adds the results to `values`, which has the inputs and
// parameters, and puts new statistics in the old ones' place. Inputs are
// written first, too. Thread-safe, as is ExactBackward.
// Errors: kInvalidArgument naming a class index that is none.
absl::Status ExactForward(const ProgramOperation& operation, DropoutSeed seed,
                          WriteFunction write, NamedValues* values);

// Adds the gradients of the wanted inputs and parameters to `gradients`, which
// has those of outputs; what these don't reach is 0. `values` are as
// ExactForward leaves them.
void ExactBackward(const ProgramOperation& operation, DropoutSeed seed,
                   WriteFunction write, const NamedValues& values,
                   NamedValues* gradients);

}  // namespace convgrad

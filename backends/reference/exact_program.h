// Computes a program by its definition, on doubles. The reference backend
// stores these results, and tests compare with them.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "backends/core/program/program_operation.h"
#include "backends/reference/program_step_data.h"

namespace convgrad {

// Values of inputs, parameters and results, or their gradients, by name.
using NamedValues = std::map<std::string, Values>;

// Calls visit(name, precision) for each input and parameter whose gradient is
// requested, in the order of the results.
void ForEachGradient(
    const ProgramOperation& operation,
    absl::FunctionRef<void(const std::string&, Precision)> visit);

// Computes every step. Adds the results to `values`, which has the inputs and
// parameters, and replaces statistics by their new values. Calls `write` for
// inputs as well. Both functions are thread-safe.
// Errors: kInvalidArgument naming an invalid class index.
absl::Status ExactForward(const ProgramOperation& operation, DropoutSeed seed,
                          WriteFunction write, NamedValues* values);

// Adds the gradients of the requested inputs and parameters to `gradients`,
// which has those of outputs. Gradients that don't depend on these are 0.
// `values` are the result of ExactForward.
void ExactBackward(const ProgramOperation& operation, DropoutSeed seed,
                   WriteFunction write, const NamedValues& values,
                   NamedValues* gradients);

}  // namespace convgrad

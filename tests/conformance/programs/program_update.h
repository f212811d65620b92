// Optimizer steps over the parameters of a program, as the server asks for
// them after a backward.
#pragma once

#include <cstdint>

#include "backends/core/backend.h"
#include "backends/core/program/program.h"
#include "tests/conformance/programs/program_data.h"

namespace convgrad::testing_support {

// Runs two steps of an optimizer that follows from `seed` on the program's
// trainable parameters, whose values and gradients are given by name: the
// first without state, the second with what the first left. Then one step that
// is skipped since a gradient isn't finite. Adds a test failure where a
// result is further from PyTorch's formula in f64 than rounding explains, a
// canary died, an operand changed, or a second run has other bytes.
void CheckUpdate(const Backend& backend, const Program& program,
                 const NamedValues& values, const NamedValues& gradients,
                 uint64_t seed);

}  // namespace convgrad::testing_support

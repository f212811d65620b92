// `CheckUpdate` checks optimizer steps over the parameters of a program.
#pragma once

#include <cstdint>

#include "backends/core/backend.h"
#include "backends/core/program/program.h"
#include "tests/conformance/programs/program_data.h"

namespace convgrad::testing_support {

// Runs two steps of an optimizer, chosen by `seed`, on the program's trainable
// parameters: the first without state, the second with the state of the first.
// Values and gradients are given by name. Then it runs a step that is skipped,
// because a gradient isn't finite. Adds a test failure if a result differs from
// PyTorch's formula in f64 by more than rounding explains. Also adds one if a
// canary or an operand changed, or if a second run has other bytes.
void CheckUpdate(const Backend& backend, const Program& program,
                 const NamedValues& values, const NamedValues& gradients,
                 uint64_t seed);

}  // namespace convgrad::testing_support

// `RandomProgram` makes random programs: all operators, shapes of rank 2 to 5,
// branches, residuals, tied weights, several outputs, losses.
#pragma once

#include <cstdint>

#include "tests/conformance/programs/program_list.h"

namespace convgrad::testing_support {

// Returns the program of `seed`, the same each time. It is valid, has shapes,
// and no value has more than some thousand elements.
ProgramCase RandomProgram(uint64_t seed);

// Returns a program of larger values, with 3x3 convolutions of enough channels
// and elements for Winograd's algorithm, alone and before what is fused with
// them. No value has more than 30,000 elements.
ProgramCase RandomFastProgram(uint64_t seed);

}  // namespace convgrad::testing_support

// Data for programs: inputs, parameters and gradients of outputs, by name.
#pragma once

#include <cstdint>
#include <string>

#include "backends/reference/exact_program.h"
#include "tests/conformance/programs/program_list.h"

namespace convgrad::testing_support {

inline constexpr DropoutSeed kDropoutSeed = {20260101, 7};

// What one run of a program is given.
struct ProgramData {
  NamedValues values;            // inputs and parameters
  NamedValues output_gradients;  // losses' are 1
};

// Numbers are exact in bf16; variances are positive, class indices are classes
// and now and then ignored.
ProgramData RealProgramData(const ProgramCase& given, uint64_t seed);

// All of it from -1, 0, 1 and 2, so that small programs of sums and products
// stay exact in bf16.
ProgramData IntegerProgramData(const ProgramCase& given, uint64_t seed);

}  // namespace convgrad::testing_support

// `ProgramData` holds the data of one run of a program: inputs, parameters and
// gradients of outputs, by name.
#pragma once

#include <cstdint>
#include <string>

#include "backends/reference/exact_program.h"
#include "tests/conformance/programs/program_list.h"

namespace convgrad::testing_support {

inline constexpr DropoutSeed kDropoutSeed = {20260101, 7};

// The data of one run of a program.
struct ProgramData {
  NamedValues values;            // inputs and parameters
  NamedValues output_gradients;  // losses' are 1
};

// Returns numbers that are exact in bf16. Variances are positive; class indices
// are classes and sometimes the ignored index.
ProgramData RealProgramData(const ProgramCase& given, uint64_t seed);

// Returns data of -1, 0, 1 and 2, so that small programs of sums and products
// are exact in bf16.
ProgramData IntegerProgramData(const ProgramCase& given, uint64_t seed);

}  // namespace convgrad::testing_support

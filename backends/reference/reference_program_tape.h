// Stores and loads the reference backend's tape: every value of one run of a
// program, as doubles, in one block of bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/core/program/philox.h"
#include "backends/core/program/program_operation.h"
#include "backends/reference/exact_program.h"

namespace convgrad {

// Returns the bytes of the block, a multiple of 64.
int64_t TapeBytesOf(const ProgramOperation& operation);

// Writes all of `tape`: the seed, then inputs and results, each at a multiple
// of 64 bytes.
void StoreTape(const ProgramOperation& operation, const DropoutSeed& seed,
               const NamedValues& values, void* tape);

// Adds inputs and results to `values`, and returns the seed.
DropoutSeed LoadTape(const ProgramOperation& operation, const void* tape,
                     NamedValues* values);

}  // namespace convgrad

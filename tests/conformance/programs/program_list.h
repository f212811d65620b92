// Programs as text, many in one file: each begins with a line
// "== NAME x=2x3x8x8 t=2 WORD...", which gives the dims of its inputs and what
// else there is to say of it; lines from "> " on hold what a test expects.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backends/core/program/program.h"
#include "backends/core/program/program_operation.h"

namespace convgrad::testing_support {

struct ProgramCase {
  std::string name;
  std::shared_ptr<const Program> program;
  std::vector<Dims> inputs;  // in the program's order
  std::set<std::string> words;
  std::vector<std::string> expected;  // lines, without "> "
};

// Dies where the file can't be read or a line makes no sense.
std::vector<ProgramCase> ReadProgramList(const std::string& path);

// Returns a request for `part`: f32 inputs in NCX, and, where there is a
// backward, the gradients of all outputs, inputs and parameters.
ProgramRequest RequestOf(const ProgramCase& given, ProgramPart part,
                         DataType compute_dtype = DataType::kF32);

}  // namespace convgrad::testing_support

// `ReadProgramList` reads a file of programs as text. Each begins with a line
// "== NAME x=2x3x8x8 t=2 WORD...", which has the dims of its inputs and other
// properties. Lines that begin with "> " hold the expected output of a test.
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

// Returns the programs of the file. Aborts if the file can't be read or a line
// is invalid.
std::vector<ProgramCase> ReadProgramList(const std::string& path);

// Returns a request for `part`: f32 inputs in NCX and, if there is a backward,
// the gradients of all outputs, inputs and parameters.
ProgramRequest RequestOf(const ProgramCase& given, ProgramPart part,
                         DataType compute_dtype = DataType::kF32);

}  // namespace convgrad::testing_support

// `ProgramTable` is the output of `convgrad program`: a program's shapes and
// costs for given dims of its inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad {

// One step of the program. Value type.
struct ProgramTableRow {
  std::string result;
  absl::string_view op;
  Dims dims;
  // Elements of parameters that no earlier step uses, statistics included.
  int64_t parameters = 0;
  int64_t flops = 0;  // of the forward pass
};

struct ProgramTable {
  std::vector<ProgramTableRow> rows;
  int64_t trainable_parameters = 0;
  int64_t fixed_parameters = 0;
  int64_t flops = 0;
  // Bytes of the inputs and all results in f32: the upper limit of a tape.
  int64_t value_bytes = 0;
};

// Reads the program in `file` and infers the shapes from `inputs`, the value of
// --input: dims such as 16x3x224x224 or, for several inputs, NAME=DIMS
// separated by commas.
// Errors: kInvalidArgument naming file, line or input; kNotFound.
absl::StatusOr<ProgramTable> ReadProgramTable(const std::string& file,
                                              const std::string& inputs);

// Returns the table as text.
std::string TextOf(const ProgramTable& table);

}  // namespace convgrad

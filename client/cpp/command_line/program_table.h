// What `convgrad program` tells of a program once the dims of its inputs are
// known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/program/program_shapes.h"

namespace convgrad {

// One step. Value type.
struct ProgramTableRow {
  std::string result;
  absl::string_view op;
  Dims dims;
  // Elements of the parameters that no earlier step uses, statistics included.
  int64_t parameters = 0;
  int64_t flops = 0;  // of the forward
};

struct ProgramTable {
  std::vector<ProgramTableRow> rows;
  int64_t trainable_parameters = 0;
  int64_t fixed_parameters = 0;
  int64_t flops = 0;
  // Of the inputs and all results together, in f32: what a tape holds at most.
  int64_t value_bytes = 0;
};

// Reads the program in `file`, and infers the shapes from `inputs`, the value
// of --input: dims, as 16x3x224x224, or, where there are several inputs,
// NAME=DIMS separated by commas.
// Errors: kInvalidArgument naming file, line or input; kNotFound.
absl::StatusOr<ProgramTable> ReadProgramTable(const std::string& file,
                                              const std::string& inputs);

// Returns the table for people.
std::string TextOf(const ProgramTable& table);

}  // namespace convgrad

// Makes the output of `convgrad program`: a program's shapes and costs for
// given dims of its inputs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace convgrad {

// Reads the program in `file`, infers the shapes from `inputs` and returns the
// document that `program --json` prints:
// * `steps`, each with its `parameters`: the elements of parameters that no
//   earlier step uses, statistics included; `flops`: of the forward pass;
// * sums of these, and `value_bytes`: of the inputs and all results in f32, the
//   upper limit of a tape.
// `inputs` is the value of --input: dims such as 16x3x224x224 or, for several
// inputs, NAME=DIMS separated by commas.
// Errors: kInvalidArgument naming file, line or input; kNotFound.
absl::StatusOr<nlohmann::ordered_json> ReadProgramTable(
    const std::string& file, const std::string& inputs);

// Returns the same document as text.
std::string ProgramText(const nlohmann::ordered_json& table);

}  // namespace convgrad

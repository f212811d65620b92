// Reads operands from .npy and .npz files and writes results, under the names
// in the contract.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/command_line/settings/settings.h"
#include "client/cpp/operation_call.h"

namespace convgrad {

// Returns the operand's values, row-major in logical order, from its own file
// or from the file for all operands; nullopt if neither has it.
// Errors: kInvalidArgument for an array with other dims, naming both; as
// ReadNpy and ReadNpz.
absl::StatusOr<std::optional<std::vector<double>>> ReadOperand(
    Operand operand, const Dims& dims, const Settings& settings);

// Returns an error if the file for all operands contains a name that no operand
// has, because the tool would otherwise silently ignore a misspelt name.
absl::Status CheckOperandNames(const Settings& settings);

// Writes the results to `out` (see Settings::out) and returns the paths.
absl::StatusOr<std::vector<std::string>> WriteResults(
    const OperationReply& reply, const std::string& out);

}  // namespace convgrad

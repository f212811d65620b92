// Tensors in .npy and .npz files, by the names that the contract has for them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/settings/settings.h"

namespace convgrad {

// Returns the operand's values, row-major in logical order, from its own file
// or the one for all; nullopt where neither has it.
// Errors: kInvalidArgument for an array of other dims, naming both; as ReadNpy
// and ReadNpz.
absl::StatusOr<std::optional<std::vector<double>>> ReadOperand(
    Operand operand, const Dims& dims, const Settings& settings);

// Refuses a file for all operands with names that no operand has: a slip of the
// keyboard would go unseen.
absl::Status CheckOperandNames(const Settings& settings);

// Writes the results to `out`, as Settings have it, and returns the paths.
absl::StatusOr<std::vector<std::string>> WriteResults(
    const OperationReply& reply, const std::string& out);

}  // namespace convgrad

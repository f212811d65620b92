// Checks one call's results by further calls that compute its adjoints.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "client/cpp/command_line/checks/adjoint_check.h"
#include "client/cpp/command_line/files/operands.h"

namespace convgrad {

// Compares the sum of grad_bias with the sum of g; both must be equal.
struct BiasSumCheck {
  double found = 0;
  double expected = 0;
  double bound = 0;

  bool ok() const;
};

// The checks that the results allow.
struct ResultCheck {
  std::optional<BiasSumCheck> grad_bias = {};
  std::optional<AdjointCheck> adjoint = {};

  bool ok() const;
};

// A call and its reply.
struct FinishedCall {
  const ConvOperation& operation;
  const LocalTensors& tensors;  // every operand of the direction
  const OperationReply& reply;
};

// Checks the results of `call`.
// Errors: those of the further calls.
absl::StatusOr<ResultCheck> CheckResults(const FinishedCall& call,
                                         const Settings& settings,
                                         Client* client);

// Returns false if the server has checked the results itself, because of
// --self_check or its own choice, and found them wrong.
bool PassedSelfCheck(const OperationReply& reply);

// Returns kDataLoss unless `ok`.
absl::Status Verdict(bool ok);

}  // namespace convgrad

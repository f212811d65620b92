// Checks of one call's results, by the calls that its adjoints take.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "client/cpp/command_line/checks/adjoint_check.h"
#include "client/cpp/command_line/files/operands.h"

namespace convgrad {

// The sum of all of grad_bias is the sum of all of g.
struct BiasSumCheck {
  double found = 0;
  double expected = 0;
  double bound = 0;

  bool ok() const;
};

// Of them those that the results allow.
struct ResultCheck {
  std::optional<BiasSumCheck> grad_bias;
  std::optional<AdjointCheck> adjoint;

  bool ok() const;
};

// What was called, and what came.
struct FinishedCall {
  const ConvOperation& operation;
  const LocalTensors& tensors;  // all that the direction can have
  const OperationReply& reply;
};

// Errors: those of the calls.
absl::StatusOr<ResultCheck> CheckResults(const FinishedCall& call,
                                         const Settings& settings,
                                         Client* client);

// Returns kDataLoss unless `ok`.
absl::Status Verdict(bool ok);

}  // namespace convgrad

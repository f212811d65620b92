// What the tool prints.
#pragma once

#include <string>
#include <vector>

#include "backends/core/conv_operation.h"
#include "client/cpp/adjoint_check.h"
#include "client/cpp/client.h"

namespace convgrad {

// Prints time, rates, the server's stages and what computed it.
void PrintReply(const ConvOperation& operation, const OperationReply& reply);

void PrintAdjoint(const AdjointCheck& check);

// Prints the spread of calls and the medians of their stages. Requires: at
// least one reply; their results may be gone.
void PrintBench(const ConvOperation& operation,
                const std::vector<OperationReply>& replies);

void PrintCapabilities(const v1::GetCapabilitiesResponse& response);

// Prints "convgrad: <code>: <message>" on one line of stderr.
void PrintError(const absl::Status& status);

}  // namespace convgrad

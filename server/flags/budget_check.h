// Checks that a budget fits the process, and the machine or container.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/flags/config.h"

namespace convgrad {

// What the process holds beside calls, buffers and plans: code, stacks, heap,
// and what gRPC buffers. Measured: 32 MiB idle, 53 MiB with 64 connections.
inline constexpr int64_t kProcessBytes = int64_t{64} << 20;

// Errors: kInvalidArgument naming --memory_budget_bytes if it leaves no room
// for two small calls or is beyond the memory limit; naming the limit instead
// if the budget follows from it. Requires: WithDefaults.
absl::Status CheckBudget(const Config& config);

}  // namespace convgrad

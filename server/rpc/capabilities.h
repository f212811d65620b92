// `DescribeServer` makes the answer of GetCapabilities from the server's
// settings and backends.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "backends/registry.h"
#include "convgrad/v1/capabilities.pb.h"

namespace convgrad {

struct ServerFacts {
  std::string version;
  int64_t max_message_bytes = 0;
  int64_t memory_budget_bytes = 0;
  int64_t max_macs = 0;
  int64_t max_reference_macs = 0;
  int workers = 0;
  int threads_per_worker = 0;
  std::string regions_address;  // empty: no regions
  int64_t max_region_bytes = 0;
};

// Returns the answer of GetCapabilities. Thread-safe.
v1::GetCapabilitiesResponse DescribeServer(
    const ServerFacts& facts, absl::Span<const RegisteredBackend> backends);

}  // namespace convgrad

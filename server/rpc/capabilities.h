// `DescribeServer` makes the answer of GetCapabilities from the server's
// settings and backends.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/types/span.h"
#include "backends/registry.h"
#include "convgrad/v1/capabilities.pb.h"
#include "convgrad/v1/session.pb.h"

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
  std::string cpu_model;
  bool fast_convolutions = true;
};

// Returns the answer of GetCapabilities. Thread-safe.
v1::GetCapabilitiesResponse DescribeServer(
    const ServerFacts& facts, absl::Span<const RegisteredBackend> backends);

// Returns what decides the bits of the server's results, by name. The names are
// those of v1::ServerDifference. Thread-safe.
std::map<std::string, std::string> FactsOf(
    const v1::GetCapabilitiesResponse& server);

// Adds what differs between two servers. Nothing is known to differ if `there`
// is empty, because snapshots of earlier versions have no facts. Thread-safe.
void AddDifferences(
    const std::map<std::string, std::string>& there,
    const std::map<std::string, std::string>& here,
    google::protobuf::RepeatedPtrField<v1::ServerDifference>* differences);

}  // namespace convgrad

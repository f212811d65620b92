// `DescribeServer` makes the answer of GetCapabilities from the server's
// settings and backends.
#pragma once

#include <map>
#include <string>

#include "absl/types/span.h"
#include "backends/registry.h"
#include "convgrad/v1/capabilities.pb.h"
#include "convgrad/v1/session.pb.h"
#include "server/flags/config.h"

namespace convgrad {

// Returns the answer of GetCapabilities, without the server's version and
// its current budget. Thread-safe.
v1::GetCapabilitiesResponse DescribeServer(
    const Config& config, const std::string& cpu_model,
    absl::Span<const RegisteredBackend> backends);

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

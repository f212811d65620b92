// `ReadingsOf` reads the metrics of a server's components.
#pragma once

#include "absl/types/span.h"
#include "backends/core/backend.h"
#include "server/sessions/client_quotas.h"
#include "server/telemetry/readings.h"

namespace convgrad {

struct ComputeEngine;

// Returns the current metrics. server/telemetry/README.md describes each
// family. Thread-safe.
Readings ReadingsOf(const ComputeEngine& engine);

// Adds the metrics of clients' sessions. Sums the clients beyond the first 16
// as "other". Thread-safe.
void AddClients(absl::Span<const ClientQuotas::Use> clients, Readings* all);

// Adds the metrics of a device with these labels. `queued` is the number of
// jobs for any device of its backend. Thread-safe.
void AddDevice(const Readings::Labels& labels, const DeviceState& state,
               int queued, Readings* all);

}  // namespace convgrad

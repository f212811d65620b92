// Lists the backends compiled into this binary, in the order of preference of
// "auto". Only this file and its source know them all.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/backend.h"
#include "backends/proof/proven_backend.h"

namespace convgrad {

// A compiled-in backend, or the reason why it can't run on this machine.
struct RegisteredBackend {
  absl::string_view name;
  absl::StatusOr<std::unique_ptr<Backend>> backend;
};

// Makes and probes every compiled-in backend, fastest first, "reference" last.
std::vector<RegisteredBackend> MakeBackends();

// Returns the backends that `names` lists, separated by commas; all if it is
// empty.
// Errors: kInvalidArgument naming --backends if one isn't compiled in.
absl::StatusOr<std::vector<RegisteredBackend>> SelectBackends(
    std::vector<RegisteredBackend> compiled, absl::string_view names);

// Starts the self-proof of each backend whose results depend on the CPU, which
// its name determines, and returns these backends. They are valid as long as
// their entries in `*backends`.
std::vector<const ProvenBackend*> AddProofs(
    const ProofListener& listener, std::vector<RegisteredBackend>* backends);

}  // namespace convgrad

// The backends compiled into this binary, in the order of preference that
// "auto" follows. The only place that knows which ones there are.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/backend.h"
#include "backends/proof/proven_backend.h"

namespace convgrad {

// A compiled-in backend, or why it can't run on this machine.
struct RegisteredBackend {
  absl::string_view name;
  absl::StatusOr<std::unique_ptr<Backend>> backend;
};

// Makes and probes every compiled-in backend, fastest first, "reference" last.
std::vector<RegisteredBackend> MakeBackends();

// Keeps those that `names` lists, joined by commas; all if it is empty.
// Errors: kInvalidArgument naming --backends if one isn't compiled in.
absl::StatusOr<std::vector<RegisteredBackend>> SelectBackends(
    std::vector<RegisteredBackend> compiled, absl::string_view names);

// Has those of `*backends` prove themselves from now on whose results depend on
// the CPU, and returns them; they live as long as their entries. Names decide.
std::vector<const ProvenBackend*> AddProofs(
    const ProofListener& listener, std::vector<RegisteredBackend>* backends);

}  // namespace convgrad

#include "server/scheduling/routing.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr absl::string_view kReference = "reference";
constexpr absl::string_view kField = "options.backend";

int64_t MacsOf(const ConvOperation& operation) { return Flops(operation) / 2; }

absl::Status Unavailable(absl::string_view name, absl::string_view why,
                         absl::string_view expected) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      {Reason::kBackendUnavailable, std::string(kField),
       absl::StrCat(name, ", which ", why), std::string(expected)});
}

}  // namespace

Router::Router(absl::Span<const RegisteredBackend> backends, Limits limits)
    : backends_(backends), limits_(limits) {
  const Backend* reference = nullptr;
  for (const RegisteredBackend& entry : backends_) {
    if (!entry.backend.ok()) continue;
    if (entry.name == kReference) {
      reference = entry.backend->get();
    } else {
      candidates_.push_back(entry.backend->get());
    }
  }
  if (candidates_.empty() && reference) candidates_.push_back(reference);
}

absl::Status Router::CheckLimits(const ConvOperation& operation) const {
  if (MacsOf(operation) <= limits_.max_macs) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kLimitExceeded, "operation.problem",
                    absl::StrCat(MacsOf(operation), " multiply-adds"),
                    absl::StrCat("at most ", limits_.max_macs)});
}

absl::StatusOr<const Backend*> Router::Route(const ConvOperation& operation,
                                             absl::string_view name) const {
  if (!name.empty()) return RouteNamed(operation, name);
  absl::Status refusal =
      MakeError(absl::StatusCode::kFailedPrecondition,
                {Reason::kBackendUnavailable, std::string(kField),
                 "no backend that can run on this server", "at least one"});
  for (const Backend* backend : candidates_) {
    absl::Status support = backend->CheckSupport(operation);
    if (support.ok()) {
      RETURN_IF_ERROR(CheckReferenceLimit(*backend, operation));
      return backend;
    }
    // The first one's: it is the preferred one that a user wants to hear about.
    if (backend == candidates_.front()) refusal = support;
  }
  return refusal;
}

absl::StatusOr<const Backend*> Router::RouteNamed(
    const ConvOperation& operation, absl::string_view name) const {
  std::string compiled;
  for (const RegisteredBackend& entry : backends_) {
    absl::StrAppend(&compiled, compiled.empty() ? "" : ", ", entry.name);
    if (entry.name != name) continue;
    if (!entry.backend.ok()) {
      return Unavailable(
          name,
          absl::StrCat("can't run here: ",
                       std::string(entry.backend.status().message())),
          "auto, or a backend that runs here");
    }
    const Backend* backend = entry.backend->get();
    RETURN_IF_ERROR(backend->CheckSupport(operation));
    RETURN_IF_ERROR(CheckReferenceLimit(*backend, operation));
    return backend;
  }
  return Unavailable(name, "isn't compiled into this server",
                     absl::StrCat("auto or one of ", compiled));
}

absl::Status Router::CheckReferenceLimit(const Backend& backend,
                                         const ConvOperation& operation) const {
  const int64_t macs = MacsOf(operation);
  if (backend.name() != kReference || macs <= limits_.max_reference_macs) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kLimitExceeded, std::string(kField),
                    absl::StrCat("reference with ", macs, " multiply-adds"),
                    absl::StrCat("at most ", limits_.max_reference_macs,
                                 " on this backend")});
}

}  // namespace convgrad

#include "server/scheduling/routing.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

constexpr absl::string_view kReference = "reference";
constexpr absl::string_view kField = "options.backend";

int64_t MacsOf(const Operation& operation) { return operation.flops() / 2; }

absl::Status Unavailable(absl::string_view name, absl::string_view why,
                         absl::string_view expected) {
  return FailedPrecondition(Reason::kBackendUnavailable, kField,
                            absl::StrCat(name, ", which ", why), expected);
}

absl::Status LostDevices(const Backend& backend) {
  return MakeError(absl::StatusCode::kUnavailable,
                   {Reason::kBackendUnavailable, std::string(kField),
                    absl::StrCat(backend.name(), ", which lost its devices"),
                    "a server that was started since"});
}

}  // namespace

Router::Router(absl::Span<const RegisteredBackend> backends, Limits limits,
               int threads_per_worker)
    : backends_(backends),
      limits_(limits),
      threads_per_worker_(threads_per_worker) {
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

absl::Status Router::CheckLimits(const Operation& operation) const {
  if (MacsOf(operation) <= limits_.max_macs) return absl::OkStatus();
  return LimitExceeded("operation.problem",
                       absl::StrCat(MacsOf(operation), " multiply-adds"),
                       absl::StrCat("at most ", limits_.max_macs));
}

bool Router::CanServe() const {
  return std::any_of(candidates_.begin(), candidates_.end(),
                     [](const Backend* backend) { return !IsLost(*backend); });
}

absl::StatusOr<Router::Choice> Router::Route(const Operation& operation,
                                             const Query& query) const {
  if (!query.backend.empty()) return RouteNamed(operation, query.backend);
  if (candidates_.empty()) {
    return FailedPrecondition(Reason::kBackendUnavailable, kField,
                              "no backend that can run on this server",
                              "at least one");
  }
  absl::Status refusal;
  std::vector<const Backend*> able;
  for (const Backend* backend : candidates_) {
    absl::Status support = IsLost(*backend) ? LostDevices(*backend)
                                            : backend->CheckSupport(operation);
    if (support.ok()) able.push_back(backend);
    // Keeps the error of the first backend, because a user expects the
    // preferred one.
    if (backend == candidates_.front()) refusal = support;
  }
  if (able.empty()) return refusal;
  Choice choice{able.front(), {}};
  if (able.size() > 1) {
    for (const Backend* backend : able) {
      choice.predictions.push_back(
          Predict(*backend, operation, query.wire_bytes, threads_per_worker_));
    }
    const auto least =
        std::min_element(choice.predictions.begin(), choice.predictions.end(),
                         [](const Prediction& a, const Prediction& b) {
                           return a.total() < b.total();
                         });
    choice.backend = able[least - choice.predictions.begin()];
  }
  RETURN_IF_ERROR(CheckReferenceLimit(*choice.backend, operation));
  return choice;
}

absl::StatusOr<Router::Choice> Router::RouteNamed(
    const Operation& operation, absl::string_view name) const {
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
    if (IsLost(*backend)) return LostDevices(*backend);
    RETURN_IF_ERROR(CheckReferenceLimit(*backend, operation));
    return Choice{backend, {}};
  }
  return Unavailable(name, "isn't compiled into this server",
                     absl::StrCat("auto or one of ", compiled));
}

absl::Status Router::CheckReferenceLimit(const Backend& backend,
                                         const Operation& operation) const {
  const int64_t macs = MacsOf(operation);
  if (backend.name() != kReference || macs <= limits_.max_reference_macs) {
    return absl::OkStatus();
  }
  return FailedPrecondition(
      Reason::kLimitExceeded, kField,
      absl::StrCat("reference with ", macs, " multiply-adds"),
      absl::StrCat("at most ", limits_.max_reference_macs, " on this backend"));
}

}  // namespace convgrad

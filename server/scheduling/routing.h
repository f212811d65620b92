// `Router` chooses the backend that computes an operation.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "backends/core/backend.h"
#include "backends/registry.h"
#include "server/scheduling/cost_model.h"

namespace convgrad {

// `Router` is thread-safe.
class Router {
 public:
  struct Limits {
    // Limits of the multiply-adds of one request, summed over its passes.
    int64_t max_macs = 0;
    int64_t max_reference_macs = 0;
  };

  struct Query {
    absl::string_view backend;  // "": auto
    // Bytes of operands and results in the call's messages.
    int64_t wire_bytes = 0;
  };

  struct Choice {
    const Backend* backend = nullptr;
    // Predictions for all backends that "auto" could choose, if there are
    // several.
    std::vector<Prediction> predictions;
  };

  // `backends` are in order of preference and outlive the router.
  Router(absl::Span<const RegisteredBackend> backends, Limits limits,
         int threads_per_worker = 1);

  // Checks the size of `operation`.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED, if `operation` has more
  // than max_macs multiply-adds.
  absl::Status CheckLimits(const Operation& operation) const;

  // Returns the backend that the query names. For "auto", returns the backend
  // with the smallest predicted time among the backends that support
  // `operation` and have a working device. It chooses the reference only if
  // there is no other backend. Requires: a valid operation, without operands
  // that it doesn't need.
  // Errors: kUnimplemented naming the missing feature; kFailedPrecondition if
  // the named backend isn't compiled in, can't run here, or is the reference
  // and the work exceeds max_reference_macs; kUnavailable if all devices are
  // lost.
  absl::StatusOr<Choice> Route(const Operation& operation,
                               const Query& query) const;

  // Returns whether "auto" has a working backend.
  bool CanServe() const;

 private:
  absl::StatusOr<Choice> RouteNamed(const Operation& operation,
                                    absl::string_view name) const;
  absl::Status CheckReferenceLimit(const Backend& backend,
                                   const Operation& operation) const;

  const absl::Span<const RegisteredBackend> backends_;
  const Limits limits_;
  const int threads_per_worker_;
  // The backends that "auto" may choose.
  std::vector<const Backend*> candidates_;
};

}  // namespace convgrad

// Which backend computes an operation.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "backends/core/backend.h"
#include "backends/registry.h"

namespace convgrad {

// Thread-safe.
class Router {
 public:
  struct Limits {
    // Multiply-adds of one request, all passes together.
    int64_t max_macs = 0;
    int64_t max_reference_macs = 0;
  };

  // `backends` in order of preference; they outlive the router.
  Router(absl::Span<const RegisteredBackend> backends, Limits limits);

  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED, if `operation` has more
  // than max_macs multiply-adds.
  absl::Status CheckLimits(const ConvOperation& operation) const;

  // Returns the backend named `name`; for "" (auto) the first one that supports
  // `operation`, but the reference only on a server that has nothing else.
  // Requires: Validate(operation).ok().
  // Errors: kUnimplemented naming what is missing; kFailedPrecondition if the
  // named backend isn't compiled in, can't run here, or is the reference and
  // the work is above max_reference_macs.
  absl::StatusOr<const Backend*> Route(const ConvOperation& operation,
                                       absl::string_view name) const;

 private:
  absl::StatusOr<const Backend*> RouteNamed(const ConvOperation& operation,
                                            absl::string_view name) const;
  absl::Status CheckReferenceLimit(const Backend& backend,
                                   const ConvOperation& operation) const;

  const absl::Span<const RegisteredBackend> backends_;
  const Limits limits_;
  // What "auto" may choose from.
  std::vector<const Backend*> candidates_;
};

}  // namespace convgrad

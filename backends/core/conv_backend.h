// A backend that computes convolutions and nothing else.
#pragma once

#include <memory>

#include "backends/core/backend.h"
#include "backends/core/conv_operation.h"

namespace convgrad {

// Refuses every operation that isn't a convolution. Thread-safe.
class ConvBackend : public Backend {
 public:
  absl::Status CheckSupport(const Operation& operation) const final;
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const Operation& operation, const PlanOptions& options) const final;

 protected:
  // Returns the capabilities of a backend that computes every convolution: all
  // results, dtypes and layouts.
  static BackendCapabilities EveryConvolution();

  // As CheckSupport and MakePlan.
  virtual absl::Status CheckConvolution(
      const ConvOperation& /*operation*/) const {
    return absl::OkStatus();
  }
  virtual absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation, const PlanOptions& options) const = 0;
};

}  // namespace convgrad

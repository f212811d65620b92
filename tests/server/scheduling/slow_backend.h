// `SlowBackend` counts as so slow that the server cuts its work into slices.
#pragma once

#include <memory>
#include <utility>

#include "backends/core/program/conv_backend.h"
#include "backends/registry.h"

namespace convgrad {

class SlowBackend final : public ConvBackend {
 public:
  SlowBackend(std::unique_ptr<Backend> backend, double macs_per_second)
      : backend_(std::move(backend)), macs_per_second_(macs_per_second) {}

  absl::string_view name() const override { return backend_->name(); }
  BackendCapabilities capabilities() const override {
    return backend_->capabilities();
  }
  double nominal_macs_per_second(int /*threads*/) const override {
    return macs_per_second_;
  }
  absl::Status CheckConvolution(const ConvOperation& operation) const override {
    return backend_->CheckSupport(operation);
  }
  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation,
      const PlanOptions& options) const override {
    return backend_->MakePlan(operation, options);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  const double macs_per_second_;
};

// Returns the registry's backend `name`, wrapped as slow.
inline std::unique_ptr<Backend> MakeSlow(absl::string_view name,
                                         double macs_per_second) {
  for (RegisteredBackend& entry : MakeBackends()) {
    if (entry.name != name) continue;
    return std::make_unique<SlowBackend>(*std::move(entry.backend),
                                         macs_per_second);
  }
  return nullptr;
}

}  // namespace convgrad

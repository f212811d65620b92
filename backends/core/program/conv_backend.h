// `ConvBackend` is the base class of backends. A subclass computes convolutions
// and optionally programs; the base class computes convolutions of an empty
// batch, and optimizer steps for backends without devices.
#pragma once

#include <memory>

#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/program/program_operation.h"

namespace convgrad {

// Passes each kind of operation to the function that plans it, and refuses all
// others. Thread-safe.
class ConvBackend : public Backend {
 public:
  absl::Status CheckSupport(const Operation& operation) const final;
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const Operation& operation, const PlanOptions& options) const final;

 protected:
  // Returns the capabilities of a backend that computes every convolution: all
  // results, dtypes and layouts.
  static BackendCapabilities EveryConvolution();

  // Do the same as CheckSupport and MakePlan. PlanConvolution requires a batch
  // of at least 1.
  virtual absl::Status CheckConvolution(
      const ConvOperation& /*operation*/) const {
    return absl::OkStatus();
  }
  virtual absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation, const PlanOptions& options) const = 0;

  // Do the same for programs. By default they refuse all programs.
  virtual absl::Status CheckProgram(const ProgramOperation& operation) const;
  virtual absl::StatusOr<std::unique_ptr<Plan>> PlanProgram(
      const ProgramOperation& operation, const PlanOptions& options) const;
};

}  // namespace convgrad

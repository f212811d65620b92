// `ReferenceConvPlan` computes an operation by its definition: it loads
// doubles, sums and stores.
#pragma once

#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// Supports all of proto/single_calls.md. Allocates doubles for the operands and
// results of each Run, and uses no scratch.
class ReferenceConvPlan : public Plan {
 public:
  // Requires: Validate(operation).ok().
  explicit ReferenceConvPlan(ConvOperation operation);

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;

  int64_t scratch_bytes() const override { return 0; }
  int64_t resident_bytes() const override;
  absl::string_view implementation() const override { return "loops:double"; }

 private:
  const ConvOperation operation_;
};

}  // namespace convgrad

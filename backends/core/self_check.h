// Whether a backward's results can be true: the adjoint identity
//     <x, grad_input> = <w, grad_weight> = <g, conv(x, w)>
// holds for right gradients whatever the data, and fails for a wrong tap, group
// or stride. g is grad_output, masked where a ReLU is fused.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/backend.h"

namespace convgrad {

// The three sides of the identity, as far as the operation gives them, and the
// contract's bound on their differences: (1e-6 + u) * <|g|, conv(|x|, |w|)>, u
// the largest unit roundoff of the results compared.
struct SelfCheckReport {
  bool passed = false;
  double forward = 0;                 // <g, conv(x, w)>
  std::optional<double> grad_input;   // <x, grad_input>
  std::optional<double> grad_weight;  // <w, grad_weight>
  double bound = 0;
  absl::Duration elapsed;
};

// Prepared for one operation, as a Plan is, and used like one: thread-safe, on
// a thread set up for the options' thread count.
class SelfCheck {
 public:
  // Errors: kUnimplemented, reason UNSUPPORTED, where the operation has nothing
  // to check: it must be a backward that has input, weight and grad_output and
  // asks for grad_input or grad_weight.
  static absl::StatusOr<std::unique_ptr<SelfCheck>> Make(
      const Backend& backend, const ConvOperation& operation,
      const PlanOptions& options);

  // Bytes of scratch that Run needs, aligned to 64.
  int64_t scratch_bytes() const;

  // Checks the results in `buffers`, which a Run of the operation's plan
  // filled. Costs two forward passes in f32. Non-finite data, for which the
  // identity says nothing, passes. Errors: those of the forward's Run.
  absl::StatusOr<SelfCheckReport> Run(const RunBuffers& buffers) const;

 private:
  SelfCheck(ConvOperation operation, ConvOperation forward,
            std::unique_ptr<Plan> plan);

  const ConvOperation operation_;
  const ConvOperation forward_;  // f32, row-major, without bias and ReLU
  const std::unique_ptr<Plan> plan_;
};

}  // namespace convgrad

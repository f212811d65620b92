// Checks whether an operation's results can be true. It costs at most two
// forward passes in f32.
//
// grad_input and grad_weight: by the adjoint identity
//     <x, grad_input> = <w, grad_weight> = <g, conv(x, w)>,
// which holds for right gradients whatever the data, and fails for a wrong tap,
// group or stride. g is grad_output, masked where a ReLU is fused.
// grad_bias, grad_residual, output: element by element, against sums of g, g
// itself, and conv(x, w) in f32 with bias, residual, ReLU and scale added here
// (self_check_elements.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// What was checked; absent is what the operation didn't give.
struct SelfCheckReport {
  // The sides of the identity are within `bound`, and no error is above 1.
  bool passed = false;
  // The three sides, and the contract's bound on their differences: (1e-6 + u)
  // * <|g|, conv(|x|, |w|)>, u the largest unit roundoff of the results
  // compared.
  std::optional<double> forward;      // <g, conv(x, w)>
  std::optional<double> grad_input;   // <x, grad_input>
  std::optional<double> grad_weight;  // <w, grad_weight>
  double bound = 0;
  // The largest error of an element, in units of what is allowed.
  std::optional<double> output_error;
  std::optional<double> grad_bias_error;
  std::optional<double> grad_residual_error;
  absl::Duration elapsed;
};

// Prepared for one operation, as a Plan is, and used like one: thread-safe, on
// a thread set up for the options' thread count.
class SelfCheck {
 public:
  // Errors: kUnimplemented, reason UNSUPPORTED, where the operation has nothing
  // to check: none of a convolution, or a backward that asks for neither
  // grad_bias nor grad_residual, and has no input, no weight or no grad_output
  // to check the others by. Those of the forward's MakePlan.
  static absl::StatusOr<std::unique_ptr<SelfCheck>> Make(
      const Backend& backend, const Operation& operation,
      const PlanOptions& options);

  // Bytes of scratch that Run needs, aligned to 64.
  int64_t scratch_bytes() const;

  // Checks the results in `buffers`, which a Run of the operation's plan
  // filled. Non-finite data passes where nothing can be said of it. Errors:
  // those of the forward's Run.
  absl::StatusOr<SelfCheckReport> Run(const RunBuffers& buffers) const;

 private:
  SelfCheck(ConvOperation operation, std::unique_ptr<Plan> plan);

  const ConvOperation operation_;
  // Of conv(x, w) in f32; null where only sums are checked.
  const std::unique_ptr<Plan> plan_;
};

}  // namespace convgrad

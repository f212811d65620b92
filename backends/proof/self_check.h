// `SelfCheck` checks an operation's results. It costs at most two forward
// passes in f32.
//
// It checks grad_input and grad_weight by the adjoint identity
//     <x, grad_input> = <w, grad_weight> = <g, conv(x, w)>,
// which holds for correct gradients of any data, and fails for a wrong tap,
// group or stride. g is grad_output, masked if a ReLU is fused.
//
// It compares other results element by element: grad_bias with sums of g,
// grad_residual with g, and output with conv(x, w) in f32, to which it adds
// bias, residual, ReLU and scale (self_check_elements.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

// The findings of a check; absent for results that the operation doesn't have.
struct SelfCheckReport {
  // True if the sides of the identity differ by at most `bound`, and no error
  // is above 1.
  bool passed = false;
  // The three sides, and the contract's bound on their differences: (1e-6 + u)
  // * <|g|, conv(|x|, |w|)>, u the largest unit roundoff of the results
  // compared, and what elements near 0 may lose: the smallest subnormal
  // (2^-126 in bf16 operations) * the sum of |x|, or of |w|, / |scale|.
  std::optional<double> forward;      // <g, conv(x, w)>
  std::optional<double> grad_input;   // <x, grad_input>
  std::optional<double> grad_weight;  // <w, grad_weight>
  double bound = 0;
  // Largest error of an element, relative to the allowed error.
  std::optional<double> output_error;
  std::optional<double> grad_bias_error;
  std::optional<double> grad_residual_error;
  absl::Duration elapsed;
};

// Prepared for one operation and used like a Plan: thread-safe, on a thread
// that is set up for the options' number of threads.
class SelfCheck {
 public:
  // Errors: kUnimplemented, reason UNSUPPORTED, if nothing can be checked: the
  // operation isn't a convolution; or it is a backward without grad_bias and
  // grad_residual that lacks the input, weight or grad_output needed to check
  // the other gradients. Those of the forward's MakePlan.
  static absl::StatusOr<std::unique_ptr<SelfCheck>> Make(
      const Backend& backend, const Operation& operation,
      const PlanOptions& options);

  // Returns the bytes of scratch that Run needs, aligned to 64.
  int64_t scratch_bytes() const;

  // Checks the results in `buffers`, which a Run of the operation's plan has
  // written. Non-finite results pass if they can't be checked. Errors: those of
  // the forward's Run.
  absl::StatusOr<SelfCheckReport> Run(const RunBuffers& buffers) const;

 private:
  SelfCheck(ConvOperation operation, std::unique_ptr<Plan> plan);

  const ConvOperation operation_;
  // Computes conv(x, w) in f32; null if only sums are checked.
  const std::unique_ptr<Plan> plan_;
};

}  // namespace convgrad

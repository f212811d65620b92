// `PlanBuilder` builds the schedule of a convolution's plan: the steps of its
// passes and copies, on the caller's tensors and on buffers of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// A tensor of the caller, or a copy of one.
struct Tensor {
  TensorDescriptor descriptor;
  Location location;
};

// Owned by one thread.
class PlanBuilder {
 public:
  // For an operation with `results` results, run by a team of `threads`.
  PlanBuilder(size_t results, int threads);

  // Return the location of the caller's tensor at this position.
  static Location OperandAt(size_t position) {
    return static_cast<BufferId>(position);
  }
  static Location ResultAt(size_t position) {
    return static_cast<BufferId>(kOperandCount + position);
  }

  // Return a buffer owned by the plan.
  Location Allocate(int64_t bytes) { return schedule_.AddBuffer(bytes); }
  Tensor Allocate(const TensorDescriptor& tensor) {
    return {tensor, Allocate(*ByteSize(tensor))};
  }

  // Appends a step that calls `function`, which reads the buffers `reads` and
  // writes the buffers `writes`. `kind` is Step::kind: that of copies, or ""
  // for arithmetic.
  void Add(const std::vector<Location>& reads,
           const std::vector<Location>& writes,
           std::function<void(const RunContext&)> function,
           absl::string_view kind = kLayoutKind);
  // Returns the schedule, to append steps of the library.
  Schedule& schedule() { return schedule_; }

  // Appends a word that says how a pass is computed.
  void AppendImplementation(absl::string_view word);
  const std::string& implementation() const { return implementation_; }

  int threads() const { return threads_; }

  // Errors: kInternal.
  static absl::StatusOr<std::unique_ptr<Plan>> MakePlan(PlanBuilder builder);

 private:
  int threads_;
  Schedule schedule_;
  std::string implementation_;
};

}  // namespace convgrad::onednn

// `ReferenceProgramPlan` computes a whole program by the definitions of its
// operators, step by step.
#pragma once

#include <vector>

#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"

namespace convgrad {

// Rounds values and their gradients to the compute dtype when a step writes
// them, and losses to f32. Sums before that are in double, e.g. the gradient of
// a value that several steps use. The tape holds every value as doubles.
// Allocates its own memory in each Run, and uses no scratch.
class ReferenceProgramPlan : public Plan {
 public:
  explicit ReferenceProgramPlan(ProgramOperation operation);

  // Errors: kInvalidArgument naming an invalid class index.
  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;

  int64_t scratch_bytes() const override { return 0; }
  int64_t tape_bytes() const override;
  int64_t resident_bytes() const override;
  absl::string_view implementation() const override { return "loops:double"; }

 private:
  const ProgramOperation operation_;
};

}  // namespace convgrad

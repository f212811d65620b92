// A whole program by the definitions of its operators, step after step.
#pragma once

#include <vector>

#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"

namespace convgrad {

// Values, and the gradients of values, are rounded to the compute dtype where a
// step writes them, losses to f32; what is added up before that, as the
// gradient of a value that several steps use, is added in double. The tape
// holds every value as doubles. Allocates for itself in each Run, and uses no
// scratch.
class ReferenceProgramPlan : public Plan {
 public:
  explicit ReferenceProgramPlan(ProgramOperation operation);

  // Errors: kInvalidArgument naming a class index that is none.
  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;

  int64_t scratch_bytes() const override { return 0; }
  int64_t tape_bytes() const override;
  int64_t resident_bytes() const override;
  absl::string_view implementation() const override { return "loops:double"; }

 private:
  const ProgramOperation operation_;
};

}  // namespace convgrad

// `MakeUpdatePlan` plans an optimizer's step for every CPU backend: plain loops
// over memory, on the backend's team of threads.
#pragma once

#include <memory>

#include "backends/core/backend.h"
#include "backends/core/optimizer/update_operation.h"

namespace convgrad {

// Formulas: update_rules.h, and torch.nn.utils.clip_grad_value_ and
// clip_grad_norm_ with the norm summed in f64. The bits don't
// depend on `threads`. If the step is skipped, the results are copies of the
// operands. `backend` must outlive the plan.
std::unique_ptr<Plan> MakeUpdatePlan(const UpdateOperation& operation,
                                     const Backend& backend, int threads);

}  // namespace convgrad

// The plan of an optimizer's step, the same for every backend on the CPU: plain
// loops over memory, on the backend's own team of threads.
#pragma once

#include <memory>

#include "backends/core/backend.h"
#include "backends/core/optimizer/update_operation.h"

namespace convgrad {

// Formulas: those of torch.optim.SGD, Adam and AdamW, each element in f32, and
// of torch.nn.utils.clip_grad_norm_, whose norm is summed in f64. The bits
// don't depend on `threads`. If the step is skipped, results are what the
// operands were. `backend` outlives the plan.
std::unique_ptr<Plan> MakeUpdatePlan(const UpdateOperation& operation,
                                     const Backend& backend, int threads);

}  // namespace convgrad

// `UpdateOperation` is one step of an optimizer over many parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/core/operation.h"

namespace convgrad {

enum class Optimizer { kSgd, kAdam, kAdamW };

// Returns "sgd", "adam" or "adamw".
absl::string_view NameOf(Optimizer optimizer);

// One parameter of a step. Value type.
struct UpdatedParameter {
  Dims dims;
  // Whether the step writes state for the next one. Only SGD without momentum
  // doesn't.
  bool keeps_state = false;
  // Whether an earlier step has written such state.
  bool has_state = false;
};

// Settings of one parameter's step, with PyTorch's names. Plain data.
struct ParameterSettings {
  double learning_rate = 0;
  double weight_decay = 0;
  double momentum = 0;
  double dampening = 0;
  double nesterov = 0;  // 0 or 1
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double maximize = 0;  // 0 or 1
};

// Settings of a step. They are an operand rather than part of the operation, so
// that a changed learning rate needs no new plan. Plain data.
struct UpdateSettings {
  double gradient_scale = 1;  // multiplies the gradients first
  double clip_norm = 0;       // 0: no clipping
  double skip_nonfinite = 0;  // 0 or 1
};

// Returns the number of a parameter's state tensors: momentum_buffer; or
// exp_avg, exp_avg_sq and step (I64 []).
size_t StateCount(Optimizer optimizer);

// The step's summary: the two numbers in its last result.
struct UpdateSummary {
  // Norm of all gradients together, scaled and not clipped; 0 unless clip_norm
  // or skip_nonfinite is set.
  float gradient_norm = 0;
  float skipped = 0;  // 0 or 1
};

// Operands: the settings (U8: UpdateSettings, then one ParameterSettings for
// each parameter), then for each parameter its value, its gradient and its
// StateCount states, null if it has none.
// Results: for each parameter its value and its states, if it keeps them, then
// the summary (F32 [2]).
// Layout: values, gradients and states are f32 and row-major.
class UpdateOperation final : public Operation {
 public:
  UpdateOperation(Optimizer optimizer,
                  std::vector<UpdatedParameter> parameters);
  UpdateOperation(const UpdateOperation&) = default;

  Optimizer optimizer() const { return optimizer_; }
  const std::vector<UpdatedParameter>& parameters() const {
    return parameters_;
  }

  absl::string_view name() const override { return "update"; }
  std::string text() const override;
  DataType dtype() const override { return DataType::kF32; }
  int64_t flops() const override;
  TensorUses OperandUses() const override;
  TensorUses ResultUses() const override;
  std::unique_ptr<const Operation> WithBatch(int64_t items) const override;

 private:
  Optimizer optimizer_;
  std::vector<UpdatedParameter> parameters_;
  TensorDescriptor settings_;
  TensorDescriptor step_;
  TensorDescriptor summary_;
  std::vector<TensorDescriptor> values_;  // by parameter
};

// Returns `operation` if it is an update, else null.
const UpdateOperation* AsUpdate(const Operation& operation);

}  // namespace convgrad

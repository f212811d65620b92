// `UpdateOperation` is one step of an optimizer over many parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "backends/core/operation.h"

namespace convgrad {

enum class Optimizer { kSgd, kAdam, kAdamW, kRmsprop, kLamb };

// Maximum number of a parameter's states.
inline constexpr size_t kMaxStates = 4;

// Returns "sgd", "adam", "adamw", "rmsprop" or "lamb".
absl::string_view NameOf(Optimizer optimizer);

// Returns the names of the states that the optimizer may keep for a parameter,
// as in torch's state_dict. "step" is I64 [] and the last one; the others have
// the parameter's dims.
absl::Span<const absl::string_view> StateNames(Optimizer optimizer);

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
  double alpha = 0.99;
  double centered = 0;  // 0 or 1
};

// Settings of a step. They are an operand rather than part of the operation, so
// that a changed learning rate needs no new plan. Plain data.
struct UpdateSettings {
  double gradient_scale = 1;  // multiplies the gradients first
  double clip_value = 0;      // then limits each element; 0: no limit
  double clip_norm = 0;       // then limits the norm; 0: no limit
  double skip_nonfinite = 0;  // 0 or 1
  double ema_decay = 0;       // of the averages
};

// A set of states: bit i is state i of StateNames.
using StateSet = uint32_t;

// Returns the states that a step with these settings writes.
StateSet KeptStates(Optimizer optimizer, const ParameterSettings& settings);

// One parameter of a step. Value type.
struct UpdatedParameter {
  Dims dims;
  // The states that the step writes.
  StateSet states = 0;
  // Whether an earlier step has written these states.
  bool has_states = false;
  // False for a tensor that only has an average, e.g. a running statistic.
  bool is_stepped = true;
  // Whether the step writes the exponential moving average of the value.
  bool is_averaged = false;
  // Whether an earlier step has written the average. The first one copies the
  // value.
  bool has_average = false;
};

// The step's summary: the two numbers in its last result.
struct UpdateSummary {
  // Norm of all gradients together, scaled and limited by clip_value, but not
  // by clip_norm; 0 unless clip_norm or skip_nonfinite is set.
  float gradient_norm = 0;
  float skipped = 0;  // 0 or 1
};

// Operands: the settings (U8: UpdateSettings, then one ParameterSettings for
// each parameter), then for each parameter its value, its gradient, its states
// and its average. Null: a gradient of a parameter that isn't stepped, states
// and averages that don't exist.
// Results: for each parameter its value if it is stepped, the states and the
// average that the step writes, then the summary (F32 [2]). A parameter's new
// value may have the memory of its gradient: a plan that writes an element of
// it no longer reads that element of the gradient. Layout: all but the settings
// and "step" are f32 and row-major.
class UpdateOperation final : public Operation {
 public:
  UpdateOperation(Optimizer optimizer,
                  std::vector<UpdatedParameter> parameters);

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

 private:
  // Returns the descriptor of state `state` of parameter `i`.
  const TensorDescriptor* StateOf(size_t i, size_t state) const;

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

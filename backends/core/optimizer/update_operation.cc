#include "backends/core/optimizer/update_operation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

TensorDescriptor Plain(DataType dtype, const Dims& dims) {
  return {dtype, Layout::kNCX, dims};
}

constexpr absl::string_view kSgdStates[] = {"momentum_buffer"};
constexpr absl::string_view kAdamStates[] = {"exp_avg", "exp_avg_sq", "step"};
constexpr absl::string_view kRmspropStates[] = {"square_avg", "momentum_buffer",
                                                "grad_avg", "step"};

struct Row {
  Optimizer optimizer;
  absl::string_view name;
  absl::Span<const absl::string_view> states;
};

const Row& RowOf(Optimizer optimizer) {
  static constexpr Row kRows[] = {
      {Optimizer::kSgd, "sgd", kSgdStates},
      {Optimizer::kAdam, "adam", kAdamStates},
      {Optimizer::kAdamW, "adamw", kAdamStates},
      {Optimizer::kRmsprop, "rmsprop", kRmspropStates},
      {Optimizer::kLamb, "lamb", kAdamStates}};
  return kRows[static_cast<size_t>(optimizer)];
}

}  // namespace

absl::string_view NameOf(Optimizer optimizer) { return RowOf(optimizer).name; }

absl::Span<const absl::string_view> StateNames(Optimizer optimizer) {
  return RowOf(optimizer).states;
}

StateSet KeptStates(Optimizer optimizer, const ParameterSettings& settings) {
  const absl::Span<const absl::string_view> names = StateNames(optimizer);
  StateSet states = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_kept = names[i] == "momentum_buffer" ? settings.momentum != 0
                         : names[i] == "grad_avg"      ? settings.centered != 0
                                                       : true;
    if (is_kept) states |= StateSet{1} << i;
  }
  return states;
}

UpdateOperation::UpdateOperation(Optimizer optimizer,
                                 std::vector<UpdatedParameter> parameters)
    : optimizer_(optimizer),
      parameters_(std::move(parameters)),
      settings_(Plain(DataType::kU8,
                      {static_cast<int64_t>(sizeof(UpdateSettings) +
                                            parameters_.size() *
                                                sizeof(ParameterSettings))})),
      step_(Plain(DataType::kI64, {})),
      summary_(Plain(DataType::kF32, {2})) {
  for (const UpdatedParameter& parameter : parameters_) {
    values_.push_back(Plain(DataType::kF32, parameter.dims));
  }
}

std::string UpdateOperation::text() const {
  return absl::StrCat(
      "update ", NameOf(optimizer_), " ",
      absl::StrJoin(parameters_, " ",
                    [](std::string* out, const UpdatedParameter& parameter) {
                      absl::StrAppend(out, ToString(parameter.dims),
                                      absl::Hex(parameter.states),
                                      parameter.has_states ? "h" : "",
                                      parameter.is_stepped ? "s" : "",
                                      parameter.is_averaged ? "a" : "",
                                      parameter.has_average ? "b" : "");
                    }));
}

int64_t UpdateOperation::flops() const {
  // About ten per element, for every optimizer.
  int64_t elements = 0;
  for (const TensorDescriptor& value : values_) {
    elements = SaturatingAdd(elements, ElementCount(value));
  }
  return SaturatingMul(elements, 10);
}

const TensorDescriptor* UpdateOperation::StateOf(size_t i, size_t state) const {
  return StateNames(optimizer_)[state] == "step" ? &step_ : &values_[i];
}

TensorUses UpdateOperation::OperandUses() const {
  TensorUses uses = {{&settings_}};
  const size_t states = StateNames(optimizer_).size();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const UpdatedParameter& parameter = parameters_[i];
    uses.push_back({&values_[i]});
    uses.push_back({parameter.is_stepped ? &values_[i] : nullptr});
    for (size_t state = 0; state < states; ++state) {
      const bool is_there =
          parameter.has_states && (parameter.states >> state & 1) != 0;
      uses.push_back({is_there ? StateOf(i, state) : nullptr});
    }
    uses.push_back({parameter.has_average ? &values_[i] : nullptr});
  }
  return uses;
}

TensorUses UpdateOperation::ResultUses() const {
  TensorUses uses;
  const size_t states = StateNames(optimizer_).size();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const UpdatedParameter& parameter = parameters_[i];
    if (parameter.is_stepped) uses.push_back({&values_[i]});
    for (size_t state = 0; state < states; ++state) {
      if ((parameter.states >> state & 1) != 0) {
        uses.push_back({StateOf(i, state)});
      }
    }
    if (parameter.is_averaged) uses.push_back({&values_[i]});
  }
  uses.push_back({&summary_});
  return uses;
}

const UpdateOperation* AsUpdate(const Operation& operation) {
  return dynamic_cast<const UpdateOperation*>(&operation);
}

}  // namespace convgrad

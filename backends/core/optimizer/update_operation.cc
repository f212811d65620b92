#include "backends/core/optimizer/update_operation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

TensorDescriptor Plain(DataType dtype, const Dims& dims) {
  TensorDescriptor tensor;
  tensor.dtype = dtype;
  tensor.dims = dims;
  return tensor;
}

}  // namespace

absl::string_view NameOf(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return "sgd";
    case Optimizer::kAdam:
      return "adam";
    case Optimizer::kAdamW:
      break;
  }
  return "adamw";
}

size_t StateCount(Optimizer optimizer) {
  return optimizer == Optimizer::kSgd ? 1 : 3;
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
                      absl::StrAppend(
                          out, ToString(absl::MakeConstSpan(parameter.dims)),
                          parameter.keeps_state ? "k" : "",
                          parameter.has_state ? "h" : "");
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

TensorUses UpdateOperation::OperandUses() const {
  TensorUses uses = {{&settings_}};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    uses.push_back({&values_[i]});
    uses.push_back({&values_[i]});
    for (size_t state = 0; state < StateCount(optimizer_); ++state) {
      const TensorDescriptor* tensor = state == 2 ? &step_ : &values_[i];
      uses.push_back({parameters_[i].has_state ? tensor : nullptr});
    }
  }
  return uses;
}

TensorUses UpdateOperation::ResultUses() const {
  TensorUses uses;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    uses.push_back({&values_[i]});
    if (!parameters_[i].keeps_state) continue;
    for (size_t state = 0; state < StateCount(optimizer_); ++state) {
      uses.push_back({state == 2 ? &step_ : &values_[i]});
    }
  }
  uses.push_back({&summary_});
  return uses;
}

std::unique_ptr<const Operation> UpdateOperation::WithBatch(int64_t) const {
  // Constructed again, because the uses point into the object.
  return std::make_unique<UpdateOperation>(optimizer_, parameters_);
}

const UpdateOperation* AsUpdate(const Operation& operation) {
  return dynamic_cast<const UpdateOperation*>(&operation);
}

}  // namespace convgrad

#include "server/rpc/networks/optimizer_step.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/rpc/networks/network_tensors.h"
#include "server/rpc/tensors/kept_results.h"

namespace convgrad {
namespace {

constexpr absl::string_view kAdamStates[] = {"exp_avg", "exp_avg_sq", "step"};
constexpr absl::string_view kSgdStates[] = {"momentum_buffer"};

absl::Span<const absl::string_view> StatesOf(Optimizer optimizer) {
  if (optimizer == Optimizer::kSgd) return kSgdStates;
  return kAdamStates;
}

TensorDescriptor StepDescriptor() {
  TensorDescriptor step;
  step.dtype = DataType::kI64;
  return step;
}

// Returns whether both descriptors have their elements at the same offsets. An
// axis of one element may have any stride.
bool HaveSameOrder(const TensorDescriptor& a, const TensorDescriptor& b) {
  if (a.dtype != b.dtype || a.dims != b.dims) return false;
  if (!IsRowMajor(a.layout) || !IsRowMajor(b.layout)) return a == b;
  const Dims in_a = Strides(a), in_b = Strides(b);
  for (size_t i = 0; i < a.dims.size(); ++i) {
    if (a.dims[i] > 1 && in_a[i] != in_b[i]) return false;
  }
  return true;
}

// Checks that the tensor kept as `name` has its elements in the order of the
// parameter.
absl::Status CheckOrder(const std::string& name, const TensorDescriptor& found,
                        const TensorDescriptor& expected) {
  if (HaveSameOrder(found, expected)) return absl::OkStatus();
  const bool fits =
      found.dtype == expected.dtype && found.dims == expected.dims;
  return InvalidField(fits ? Reason::kLayoutMismatch : Reason::kShapeMismatch,
                      name, ToString(found), ToString(expected));
}

// Returns the descriptor of the state `index` of a parameter.
TensorDescriptor StateDescriptor(const TensorDescriptor& value, size_t index) {
  return index == 2 ? StepDescriptor() : value;
}

}  // namespace

// One parameter that has a gradient.
struct OptimizerStep::Item {
  std::string name;
  KeptTensor value;
  KeptTensor gradient;
  ParameterSettings settings;
};

std::optional<KeptTensor> OptimizerStep::GradientOf(
    const std::string& parameter) {
  const std::string name = NameOfKept(parameter, "gradient");
  const auto& written = session_.writes()->tensors;
  const auto now = written.find(name);
  if (now != written.end()) return now->second;
  const auto& kept = session_.state().tensors;
  const auto before = kept.find(name);
  if (before == kept.end()) return std::nullopt;
  return before->second;
}

absl::StatusOr<std::vector<OptimizerStep::Item>> OptimizerStep::FindItems(
    const DecodedUpdate& update) {
  std::vector<Item> items;
  for (size_t i = 0; i < update.groups.size(); ++i) {
    const std::string path = absl::StrCat(path_, "groups[", i, "].parameters");
    for (const std::string& name : update.groups[i].parameters) {
      Item item{name, {}, {}, update.groups[i].settings};
      ASSIGN_OR_RETURN(item.value, session_.Find(name, 0, path));
      std::optional<KeptTensor> gradient = GradientOf(name);
      if (!gradient) continue;
      item.gradient = *std::move(gradient);
      RETURN_IF_ERROR(CheckItem(item));
      items.push_back(std::move(item));
    }
  }
  return items;
}

absl::Status OptimizerStep::CheckItem(const Item& item) {
  const TensorDescriptor& value = item.value.descriptor;
  if (value.dtype != DataType::kF32 || !IsRowMajor(value.layout)) {
    return InvalidField(Reason::kDtypeMismatch, item.name, ToString(value),
                        "a row-major parameter in f32");
  }
  return CheckOrder(NameOfKept(item.name, "gradient"), item.gradient.descriptor,
                    value);
}

TensorPlace OptimizerStep::PlaceSettings(const UpdateSettings& settings,
                                         const std::vector<Item>& items) {
  auto bytes = std::make_shared<std::vector<std::byte>>(
      sizeof(settings) + items.size() * sizeof(ParameterSettings));
  std::memcpy(bytes->data(), &settings, sizeof(settings));
  for (size_t i = 0; i < items.size(); ++i) {
    std::memcpy(
        bytes->data() + sizeof(settings) + i * sizeof(ParameterSettings),
        &items[i].settings, sizeof(ParameterSettings));
  }
  TensorPlace place;
  place.data = bytes->data();
  place.owner = std::move(bytes);
  return place;
}

absl::Status OptimizerStep::PlaceItem(const Item& item,
                                      UpdatedParameter* parameter,
                                      TensorPlaces* places) {
  const TensorDescriptor& value = item.value.descriptor;
  parameter->dims = value.dims;
  parameter->keeps_state =
      optimizer_ != Optimizer::kSgd || item.settings.momentum != 0;
  places->operands.push_back(PlaceOf(item.value));
  places->operands.push_back(PlaceOf(item.gradient));
  KeptResults kept(&session_, &paid_);
  ASSIGN_OR_RETURN(TensorPlace now, kept.Write(item.name, value));
  places->results.push_back(std::move(now));
  written_.push_back(item.name);
  const absl::Span<const absl::string_view> states = StatesOf(optimizer_);
  const auto& tensors = session_.state().tensors;
  for (size_t i = 0; i < states.size(); ++i) {
    const std::string name = NameOfKept(item.name, states[i]);
    const TensorDescriptor descriptor = StateDescriptor(value, i);
    const auto old = tensors.find(name);
    const bool is_there = parameter->keeps_state && old != tensors.end() &&
                          old->second.descriptor.dtype == descriptor.dtype &&
                          old->second.descriptor.dims == descriptor.dims;
    if (is_there) {
      RETURN_IF_ERROR(CheckOrder(name, old->second.descriptor, descriptor));
    }
    if (i == 0) parameter->has_state = is_there;
    if (is_there != parameter->has_state) {
      return InvalidField(Reason::kMissing, name, "no fitting tensor",
                          ToString(descriptor));
    }
    places->operands.push_back(is_there ? PlaceOf(old->second) : TensorPlace());
    if (!parameter->keeps_state) continue;
    ASSIGN_OR_RETURN(TensorPlace state, kept.Write(name, descriptor));
    places->results.push_back(std::move(state));
    written_.push_back(name);
  }
  return absl::OkStatus();
}

absl::StatusOr<OptimizerStep::Work> OptimizerStep::Begin(
    const DecodedUpdate& update) {
  optimizer_ = update.optimizer;
  ASSIGN_OR_RETURN(const std::vector<Item> items, FindItems(update));
  Work work;
  work.places.operands.push_back(PlaceSettings(update.settings, items));
  std::vector<UpdatedParameter> parameters(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(PlaceItem(items[i], &parameters[i], &work.places));
    const std::string gradient = NameOfKept(items[i].name, "gradient");
    gradients_.push_back(gradient);
    if (!update.keep_gradients) {
      session_.writes()->tensors[gradient] = std::nullopt;
    }
  }
  work.places.results.emplace_back();
  work.operation =
      std::make_shared<UpdateOperation>(optimizer_, std::move(parameters));
  return work;
}

v1::UpdateParametersResponse OptimizerStep::End(const SharedBytes& told) {
  UpdateSummary summary;
  std::memcpy(&summary, told.data, sizeof(summary));
  v1::UpdateParametersResponse response;
  response.set_gradient_norm(summary.gradient_norm);
  response.set_skipped(summary.skipped != 0);
  if (summary.skipped == 0) return response;
  // A skipped step keeps values and states, and drops the gradients, because
  // they aren't finite.
  for (const std::string& name : written_) {
    session_.writes()->tensors.erase(name);
  }
  for (const std::string& name : gradients_) {
    session_.writes()->tensors[name] = std::nullopt;
  }
  return response;
}

}  // namespace convgrad

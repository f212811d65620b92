#include "server/rpc/networks/optimizer_step.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
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

absl::StatusOr<Optimizer> OptimizerOf(
    v1::UpdateParametersRequest::Algorithm algorithm, const std::string& path) {
  switch (algorithm) {
    case v1::UpdateParametersRequest::ALGORITHM_SGD:
      return Optimizer::kSgd;
    case v1::UpdateParametersRequest::ALGORITHM_ADAM:
      return Optimizer::kAdam;
    case v1::UpdateParametersRequest::ALGORITHM_ADAMW:
      return Optimizer::kAdamW;
    default:
      return InvalidField(Reason::kInvalidEnum, path + "algorithm",
                          absl::StrCat(static_cast<int>(algorithm)),
                          "SGD, ADAM or ADAMW");
  }
}

absl::Status CheckRange(double value, double least, double most,
                        const std::string& path) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidField(Reason::kOutOfRange, path, absl::StrCat(value),
                      absl::StrCat("a number from ", least, " to ", most));
}

// The ranges of torch.optim.
absl::Status CheckGroup(const v1::UpdateParametersRequest::Group& group,
                        const std::string& path) {
  const double most = std::numeric_limits<double>::max();
  const double below_1 = std::nextafter(1.0, 0.0);
  RETURN_IF_ERROR(
      CheckRange(group.learning_rate(), 0, most, path + ".learning_rate"));
  RETURN_IF_ERROR(
      CheckRange(group.weight_decay(), 0, most, path + ".weight_decay"));
  RETURN_IF_ERROR(CheckRange(group.momentum(), 0, most, path + ".momentum"));
  RETURN_IF_ERROR(
      CheckRange(group.dampening(), -most, most, path + ".dampening"));
  RETURN_IF_ERROR(CheckRange(group.beta1(), 0, below_1, path + ".beta1"));
  RETURN_IF_ERROR(CheckRange(group.beta2(), 0, below_1, path + ".beta2"));
  RETURN_IF_ERROR(CheckRange(group.epsilon(), 0, most, path + ".epsilon"));
  if (!group.nesterov() || (group.momentum() > 0 && group.dampening() == 0)) {
    return absl::OkStatus();
  }
  return InvalidField(Reason::kOutOfRange, path + ".nesterov", "true",
                      "false, or a momentum without dampening beside it");
}

ParameterSettings SettingsOf(const v1::UpdateParametersRequest::Group& group) {
  ParameterSettings settings;
  settings.learning_rate = group.learning_rate();
  settings.weight_decay = group.weight_decay();
  settings.momentum = group.momentum();
  settings.dampening = group.dampening();
  settings.nesterov = group.nesterov() ? 1 : 0;
  if (group.has_beta1()) settings.beta1 = group.beta1();
  if (group.has_beta2()) settings.beta2 = group.beta2();
  if (group.has_epsilon()) settings.epsilon = group.epsilon();
  settings.maximize = group.maximize() ? 1 : 0;
  return settings;
}

TensorDescriptor StepDescriptor() {
  TensorDescriptor step;
  step.dtype = DataType::kI64;
  return step;
}

// Returns whether the same bytes say the same elements of both. An axis of one
// element has no order.
bool HaveSameOrder(const TensorDescriptor& a, const TensorDescriptor& b) {
  if (a.dtype != b.dtype || a.dims != b.dims) return false;
  if (!IsRowMajor(a.layout) || !IsRowMajor(b.layout)) return a == b;
  const Dims in_a = Strides(a), in_b = Strides(b);
  for (size_t i = 0; i < a.dims.size(); ++i) {
    if (a.dims[i] > 1 && in_a[i] != in_b[i]) return false;
  }
  return true;
}

// Checks that what is kept as `name` has its elements in the order of the
// parameter's.
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
    const v1::UpdateParametersRequest& head) {
  std::vector<Item> items;
  std::set<std::string> seen;
  for (int i = 0; i < head.groups_size(); ++i) {
    const v1::UpdateParametersRequest::Group& group = head.groups(i);
    const std::string path = absl::StrCat(path_, "groups[", i, "]");
    RETURN_IF_ERROR(CheckGroup(group, path));
    for (const std::string& name : group.parameters()) {
      if (!seen.insert(name).second) {
        return InvalidField(Reason::kDuplicate, path + ".parameters",
                            absl::StrCat("'", name, "' twice"),
                            "each parameter in one group");
      }
      Item item{name, {}, {}, SettingsOf(group)};
      ASSIGN_OR_RETURN(item.value,
                       session_.Find(name, 0, path + ".parameters"));
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

TensorPlace OptimizerStep::PlaceSettings(
    const v1::UpdateParametersRequest& head, const std::vector<Item>& items) {
  UpdateSettings settings;
  if (head.has_gradient_scale())
    settings.gradient_scale = head.gradient_scale();
  settings.clip_norm = head.clip_norm();
  settings.skip_nonfinite = head.skip_nonfinite() ? 1 : 0;
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
    const v1::UpdateParametersRequest& head) {
  ASSIGN_OR_RETURN(optimizer_, OptimizerOf(head.algorithm(), path_));
  const double most = std::numeric_limits<double>::max();
  RETURN_IF_ERROR(
      CheckRange(head.gradient_scale(), -most, most, path_ + "gradient_scale"));
  RETURN_IF_ERROR(CheckRange(head.clip_norm(), 0, most, path_ + "clip_norm"));
  ASSIGN_OR_RETURN(const std::vector<Item> items, FindItems(head));
  Work work;
  work.places.operands.push_back(PlaceSettings(head, items));
  std::vector<UpdatedParameter> parameters(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(PlaceItem(items[i], &parameters[i], &work.places));
    const std::string gradient = NameOfKept(items[i].name, "gradient");
    gradients_.push_back(gradient);
    if (!head.keep_gradients()) {
      session_.writes()->tensors[gradient] = std::nullopt;
    }
  }
  work.places.results.emplace_back();
  work.operation =
      std::make_shared<UpdateOperation>(optimizer_, std::move(parameters));
  return work;
}

v1::UpdateParametersResponse OptimizerStep::End(const LentBytes& told) {
  UpdateSummary summary;
  std::memcpy(&summary, told.data, sizeof(summary));
  v1::UpdateParametersResponse response;
  response.set_gradient_norm(summary.gradient_norm);
  response.set_skipped(summary.skipped != 0);
  if (summary.skipped == 0) return response;
  // Values and states stay as they are; the gradients that weren't finite go.
  for (const std::string& name : written_) {
    session_.writes()->tensors.erase(name);
  }
  for (const std::string& name : gradients_) {
    session_.writes()->tensors[name] = std::nullopt;
  }
  return response;
}

}  // namespace convgrad

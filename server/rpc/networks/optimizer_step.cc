#include "server/rpc/networks/optimizer_step.h"

#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "server/rpc/networks/network_tensors.h"

namespace convgrad {
namespace {

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

}  // namespace

// A parameter that has a gradient, or a tensor that only has an average.
struct OptimizerStep::Item {
  std::string name;
  KeptTensor value;
  std::optional<KeptTensor> gradient;
  ParameterSettings settings;
  // Whether the gradient isn't needed after the step: this call has made it,
  // drops it, and keeps no average of it.
  bool drops_gradient = false;
};

std::optional<KeptTensor> OptimizerStep::Newest(const std::string& name) {
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
  const absl::flat_hash_set<absl::string_view> averaged(update.averaged.begin(),
                                                        update.averaged.end());
  std::vector<Item> items;
  for (size_t i = 0; i < update.groups.size(); ++i) {
    const std::string path = absl::StrCat(path_, "groups[", i, "].parameters");
    for (const std::string& name : update.groups[i].parameters) {
      Item item{name, {}, {}, update.groups[i].settings};
      ASSIGN_OR_RETURN(item.value, session_.Find(name, 0, path));
      const std::string gradient = NameOfKept(name, "gradient");
      item.gradient = Newest(gradient);
      if (!item.gradient && !is_averaged_) continue;
      item.drops_gradient = !update.keep_gradients &&
                            session_.writes()->tensors.contains(gradient) &&
                            !averaged.contains(gradient);
      RETURN_IF_ERROR(CheckItem(item));
      items.push_back(std::move(item));
    }
  }
  for (const std::string& name : update.averaged) {
    Item item{name, {}, {}, {}};
    std::optional<KeptTensor> written = Newest(name);
    if (written) {
      item.value = *std::move(written);
    } else {
      ASSIGN_OR_RETURN(item.value,
                       session_.Find(name, 0, absl::StrCat(path_, "averaged")));
    }
    RETURN_IF_ERROR(CheckItem(item));
    items.push_back(std::move(item));
  }
  return items;
}

absl::Status OptimizerStep::CheckItem(const Item& item) {
  const TensorDescriptor& value = item.value.descriptor;
  if (value.dtype != DataType::kF32 || !IsRowMajor(value.layout)) {
    return InvalidField(Reason::kDtypeMismatch, item.name, ToString(value),
                        "a row-major parameter in f32");
  }
  if (!item.gradient) return absl::OkStatus();
  return CheckOrder(NameOfKept(item.name, "gradient"),
                    item.gradient->descriptor, value);
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
  parameter->dims = item.value.descriptor.dims;
  parameter->is_stepped = item.gradient.has_value();
  parameter->is_averaged = is_averaged_;
  places->operands.push_back(PlaceOf(item.value));
  places->operands.push_back(item.gradient ? PlaceOf(*item.gradient)
                                           : TensorPlace());
  if (item.gradient) {
    parameter->states = KeptStates(optimizer_, item.settings);
    if (item.drops_gradient) {
      WriteOverGradient(item, places);
    } else {
      RETURN_IF_ERROR(Write(item.name, item.value.descriptor, places));
    }
  }
  RETURN_IF_ERROR(PlaceStates(item, parameter, places));
  TensorPlace& average = places->operands.emplace_back();
  if (!is_averaged_) return absl::OkStatus();
  const std::string name = NameOfKept(item.name, "ema");
  ASSIGN_OR_RETURN(const std::optional<KeptTensor> old,
                   FindState(name, item.value.descriptor));
  parameter->has_average = old.has_value();
  if (old) average = PlaceOf(*old);
  return Write(name, item.value.descriptor, places);
}

absl::Status OptimizerStep::PlaceStates(const Item& item,
                                        UpdatedParameter* parameter,
                                        TensorPlaces* places) {
  bool is_first = true;
  const absl::Span<const absl::string_view> names = StateNames(optimizer_);
  for (size_t i = 0; i < names.size(); ++i) {
    if ((parameter->states >> i & 1) == 0) {
      places->operands.emplace_back();
      continue;
    }
    const std::string name = NameOfKept(item.name, names[i]);
    const TensorDescriptor descriptor =
        names[i] == "step"
            ? TensorDescriptor{.dtype = DataType::kI64, .dims = {}}
            : item.value.descriptor;
    ASSIGN_OR_RETURN(const std::optional<KeptTensor> old,
                     FindState(name, descriptor));
    if (std::exchange(is_first, false)) {
      parameter->has_states = old.has_value();
    }
    if (old.has_value() != parameter->has_states) {
      const std::string found = ToString(descriptor);
      return old ? InvalidField(Reason::kUnsupported, name, found,
                                "none, because the session lacks other states "
                                "of the parameter")
                 : Missing(name, "no tensor", found);
    }
    places->operands.push_back(old ? PlaceOf(*old) : TensorPlace());
    RETURN_IF_ERROR(Write(name, descriptor, places));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<KeptTensor>> OptimizerStep::FindState(
    const std::string& name, const TensorDescriptor& expected) const {
  const auto& tensors = session_.state().tensors;
  const auto old = tensors.find(name);
  if (old == tensors.end()) return std::nullopt;
  RETURN_IF_ERROR(CheckOrder(name, old->second.descriptor, expected));
  return old->second;
}

absl::Status OptimizerStep::Write(const std::string& name,
                                  const TensorDescriptor& descriptor,
                                  TensorPlaces* places) {
  // A suffix may make a name too long, and snapshots keep no such name.
  RETURN_IF_ERROR(CheckName(name, name));
  ASSIGN_OR_RETURN(places->results.emplace_back(),
                   session_.Write(name, descriptor, &paid_));
  written_.push_back(name);
  return absl::OkStatus();
}

void OptimizerStep::WriteOverGradient(const Item& item, TensorPlaces* places) {
  TensorPlace place = PlaceOf(*item.gradient);
  place.constant_id = 0;
  place.is_kept = true;
  places->results.push_back(std::move(place));
  session_.writes()->tensors[item.name] =
      KeptTensor{item.value.descriptor, item.gradient->bytes, 0};
  written_.push_back(item.name);
}

absl::StatusOr<UnaryCall::Request> OptimizerStep::Begin(
    const DecodedUpdate& update, const Router& router) {
  optimizer_ = update.optimizer;
  is_averaged_ = update.is_averaged;
  ASSIGN_OR_RETURN(const std::vector<Item> items, FindItems(update));
  UnaryCall::Request work;
  work.places.operands.push_back(PlaceSettings(update.settings, items));
  std::vector<UpdatedParameter> parameters(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(PlaceItem(items[i], &parameters[i], &work.places));
    if (!items[i].gradient) continue;
    const std::string gradient = NameOfKept(items[i].name, "gradient");
    gradients_.push_back(gradient);
    if (!update.keep_gradients) {
      session_.writes()->tensors[gradient] = std::nullopt;
    }
  }
  work.places.results.emplace_back();
  work.operation =
      std::make_shared<UpdateOperation>(optimizer_, std::move(parameters));
  ASSIGN_OR_RETURN(const Router::Choice route,
                   router.Route(*work.operation, {}));
  work.backend = route.backend;
  return work;
}

v1::UpdateParametersResponse OptimizerStep::End(const grpc::Slice& told) {
  UpdateSummary summary;
  std::memcpy(&summary, told.begin(), sizeof(summary));
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

#include "proto/codec/network_codec.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/codec.h"
#include "proto/codec/codec_enums.h"
#include "proto/codec/decode_operation.h"
#include "proto/codec/session_codec.h"

namespace convgrad {
namespace {

constexpr double kMost = std::numeric_limits<double>::max();

// Sets the descriptor and the source of a tensor. `path` names it in errors.
absl::Status DecodeSource(const v1::Tensor& tensor, const std::string& path,
                          NamedPayloads* payloads, NamedTensor* named) {
  if (tensor.has_kept()) {
    named->source.kept = DecodeKeptName(tensor.kept());
    return absl::OkStatus();
  }
  if (tensor.source_case() == v1::Tensor::SOURCE_NOT_SET) {
    return Missing(path, "no source", "inline, region or kept");
  }
  ASSIGN_OR_RETURN(named->descriptor, DecodeTensor(tensor, 1, path));
  if (tensor.has_inline_() || tensor.has_region()) {
    return DecodePlace(tensor, *named->descriptor, path, payloads,
                       &named->source);
  }
  return Unsupported(path + ".source", "another source",
                     "inline, region or kept");
}

// Checks that the fields of a run go together.
absl::Status CheckFields(const v1::RunProgramRequest& message) {
  if (message.has_update() &&
      (!message.has_backward() || message.backward().leave_parameters())) {
    return Missing("backward", "an update without gradients of parameters",
                   "a backward that gives them");
  }
  if (message.tape().empty() || !message.has_backward()) {
    return absl::OkStatus();
  }
  return InvalidField(Reason::kUnsupported, "tape",
                      absl::StrCat("'", message.tape(), "' beside backward"),
                      "one of them: a backward in the same call needs no tape");
}

absl::StatusOr<DataType> DecodeComputeDtype(v1::DataType dtype) {
  if (dtype == v1::DATA_TYPE_UNSPECIFIED) return DataType::kF32;
  const std::optional<DataType> known = DecodeDataType(dtype);
  if (known == DataType::kF32 || known == DataType::kBF16) return *known;
  return Unsupported("compute_dtype", v1::DataType_Name(dtype), "F32 or BF16");
}

absl::StatusOr<Optimizer> DecodeAlgorithm(
    v1::UpdateParametersRequest::Algorithm algorithm, const std::string& path) {
  // The wire's enum has the core's values in the same order, after UNSPECIFIED.
  static_assert(v1::UpdateParametersRequest::ALGORITHM_LAMB ==
                static_cast<int>(Optimizer::kLamb) + 1);
  if (algorithm >= v1::UpdateParametersRequest::ALGORITHM_SGD &&
      algorithm <= v1::UpdateParametersRequest::ALGORITHM_LAMB) {
    return static_cast<Optimizer>(algorithm - 1);
  }
  return InvalidEnum(path + "algorithm", static_cast<int>(algorithm),
                     "SGD, ADAM, ADAMW, RMSPROP or LAMB");
}

absl::Status CheckRange(double value, double least, double most,
                        const std::string& path) {
  if (value >= least && value <= most) return absl::OkStatus();
  return OutOfRange(path, value,
                    absl::StrCat("a number from ", least, " to ", most));
}

absl::Status CheckBeta(double value, const std::string& path) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return OutOfRange(path, value, "a number from 0 on, below 1");
}

// Checks the ranges that torch.optim allows.
absl::Status CheckGroup(const v1::UpdateParametersRequest::Group& group,
                        const std::string& path) {
  RETURN_IF_ERROR(
      CheckRange(group.learning_rate(), 0, kMost, path + ".learning_rate"));
  RETURN_IF_ERROR(
      CheckRange(group.weight_decay(), 0, kMost, path + ".weight_decay"));
  RETURN_IF_ERROR(CheckRange(group.momentum(), 0, kMost, path + ".momentum"));
  RETURN_IF_ERROR(
      CheckRange(group.dampening(), -kMost, kMost, path + ".dampening"));
  RETURN_IF_ERROR(CheckBeta(group.beta1(), path + ".beta1"));
  RETURN_IF_ERROR(CheckBeta(group.beta2(), path + ".beta2"));
  RETURN_IF_ERROR(CheckRange(group.epsilon(), 0, kMost, path + ".epsilon"));
  RETURN_IF_ERROR(CheckRange(group.alpha(), 0, kMost, path + ".alpha"));
  if (!group.nesterov() || (group.momentum() > 0 && group.dampening() == 0)) {
    return absl::OkStatus();
  }
  return OutOfRange(path + ".nesterov", "true",
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
  if (group.has_alpha()) settings.alpha = group.alpha();
  settings.centered = group.centered() ? 1 : 0;
  return settings;
}

// Checks the tensors that only have an average. `seen` has the names of
// parameters.
absl::Status CheckAveraged(const v1::UpdateParametersRequest& message,
                           const std::string& path,
                           std::set<std::string>* seen) {
  if (message.averaged_size() > 0 && message.ema_decay() == 0) {
    return Missing(path + "ema_decay", "0",
                   "a decay above 0 beside `averaged`");
  }
  for (const std::string& name : message.averaged()) {
    if (seen->insert(name).second) continue;
    return InvalidField(Reason::kDuplicate, path + "averaged",
                        absl::StrCat("'", name, "' twice"),
                        "tensors that aren't in `groups`, each once");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> DecodeTensors(
    const google::protobuf::RepeatedPtrField<v1::NamedValue>& message,
    const std::string& field, absl::Span<const int64_t> payload_bytes) {
  RETURN_IF_ERROR(CheckCount(message.size(), field));
  NamedPayloads payloads(payload_bytes);
  std::set<std::string> names;
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < message.size(); ++i) {
    const std::string path = absl::StrCat(field, "[", i, "]");
    NamedTensor named{message[i].name(), std::nullopt, {}};
    if (!names.insert(named.name).second) {
      return InvalidField(Reason::kDuplicate, path + ".name",
                          absl::StrCat("'", named.name, "' twice"),
                          "a name of its own");
    }
    RETURN_IF_ERROR(
        DecodeSource(message[i].tensor(), path + ".tensor", &payloads, &named));
    tensors.push_back(std::move(named));
  }
  RETURN_IF_ERROR(payloads.CheckAll());
  return tensors;
}

absl::StatusOr<DecodedRun> DecodeRun(const v1::RunProgramRequest& message,
                                     absl::Span<const int64_t> payload_bytes) {
  DecodedRun run;
  ASSIGN_OR_RETURN(run.inputs,
                   DecodeTensors(message.inputs(), "inputs", payload_bytes));
  RETURN_IF_ERROR(CheckFields(message));
  ASSIGN_OR_RETURN(run.compute_dtype,
                   DecodeComputeDtype(message.compute_dtype()));
  if (message.has_update()) {
    ASSIGN_OR_RETURN(run.update, DecodeUpdate(message.update(), "update."));
  }
  return run;
}

absl::StatusOr<DecodedUpdate> DecodeUpdate(
    const v1::UpdateParametersRequest& message, const std::string& path) {
  DecodedUpdate update;
  ASSIGN_OR_RETURN(update.optimizer,
                   DecodeAlgorithm(message.algorithm(), path));
  RETURN_IF_ERROR(CheckRange(message.gradient_scale(), -kMost, kMost,
                             path + "gradient_scale"));
  RETURN_IF_ERROR(
      CheckRange(message.clip_value(), 0, kMost, path + "clip_value"));
  RETURN_IF_ERROR(
      CheckRange(message.clip_norm(), 0, kMost, path + "clip_norm"));
  RETURN_IF_ERROR(CheckRange(message.ema_decay(), 0, 1, path + "ema_decay"));
  if (message.has_gradient_scale()) {
    update.settings.gradient_scale = message.gradient_scale();
  }
  update.settings.clip_value = message.clip_value();
  update.settings.clip_norm = message.clip_norm();
  update.settings.ema_decay = message.ema_decay();
  update.settings.skip_nonfinite = message.skip_nonfinite() ? 1 : 0;
  std::set<std::string> seen;
  for (int i = 0; i < message.groups_size(); ++i) {
    const v1::UpdateParametersRequest::Group& group = message.groups(i);
    const std::string field = absl::StrCat(path, "groups[", i, "]");
    RETURN_IF_ERROR(CheckGroup(group, field));
    for (const std::string& name : group.parameters()) {
      if (seen.insert(name).second) continue;
      return InvalidField(Reason::kDuplicate, field + ".parameters",
                          absl::StrCat("'", name, "' twice"),
                          "each parameter in one group");
    }
    const auto& names = group.parameters();
    update.groups.push_back({{names.begin(), names.end()}, SettingsOf(group)});
  }
  update.keep_gradients = message.keep_gradients();
  update.is_averaged = message.ema_decay() > 0;
  RETURN_IF_ERROR(CheckAveraged(message, path, &seen));
  update.averaged.assign(message.averaged().begin(), message.averaged().end());
  return update;
}

}  // namespace convgrad

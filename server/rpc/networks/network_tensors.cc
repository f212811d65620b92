#include "server/rpc/networks/network_tensors.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "proto/codec/session_codec.h"
#include "server/rpc/tensors/tensor_places.h"

namespace convgrad {
namespace {

absl::StatusOr<PlacedTensor> PlaceKept(const v1::Tensor::Kept& kept,
                                       const std::string& path,
                                       const SessionPart& session) {
  RETURN_IF_ERROR(session.CheckId(kept.session_id(), path + ".kept"));
  ASSIGN_OR_RETURN(
      const KeptTensor tensor,
      session.Find(kept.tensor_id(), kept.version(), path + ".kept.tensor_id"));
  return PlacedTensor{tensor.descriptor, PlaceOf(tensor)};
}

absl::Status AddOnce(const std::string& name, const std::string& path,
                     PlacedTensor tensor, PlacedTensors* placed) {
  if (placed->emplace(name, std::move(tensor)).second) return absl::OkStatus();
  return InvalidField(Reason::kDuplicate, path + ".name",
                      absl::StrCat("'", name, "' twice"), "a name of its own");
}

}  // namespace

std::string NameOfKept(absl::string_view parameter, absl::string_view what) {
  return absl::StrCat(parameter, "#", what);
}

TensorPlace PlaceOf(const KeptTensor& tensor) {
  return {nullptr, tensor.bytes, tensor.bytes->data(), tensor.bytes->id()};
}

absl::StatusOr<PlacedTensors> PlaceNamed(
    const google::protobuf::RepeatedPtrField<v1::NamedValue>& message,
    std::vector<PayloadView> payloads, const std::string& path,
    const SessionPart& session, const RegionRegistry* registry) {
  PlacedTensors placed;
  // What isn't kept is checked as what is put: the rules are the same.
  v1::PutTensorsRequest sent;
  for (int i = 0; i < message.size(); ++i) {
    const v1::NamedValue& named = message[i];
    const std::string field = absl::StrCat(path, "[", i, "].tensor");
    RETURN_IF_ERROR(
        CheckName(named.name(), absl::StrCat(path, "[", i, "].name")));
    if (named.tensor().has_kept()) {
      ASSIGN_OR_RETURN(PlacedTensor tensor,
                       PlaceKept(named.tensor().kept(), field, session));
      RETURN_IF_ERROR(AddOnce(named.name(), absl::StrCat(path, "[", i, "]"),
                              std::move(tensor), &placed));
    } else {
      v1::NamedPut* put = sent.add_tensors();
      put->set_name(named.name());
      *put->mutable_tensor() = named.tensor();
    }
  }
  absl::StatusOr<std::vector<DecodedPut>> puts =
      DecodePuts(sent, SizesOf(payloads));
  if (!puts.ok()) return puts.status();
  // Several may name one payload.
  std::vector<std::shared_ptr<PayloadView>> shared(payloads.size());
  for (DecodedPut& put : *puts) {
    const std::string field = absl::StrCat(path, ".", put.name);
    PlacedTensor tensor{*put.descriptor, {}};
    if (put.region) {
      ASSIGN_OR_RETURN(tensor.place,
                       PlaceInRegion(*put.region, field, registry));
    } else {
      std::shared_ptr<PayloadView>& payload = shared[put.payload_index];
      if (payload == nullptr) {
        payload = std::make_shared<PayloadView>(
            std::move(payloads[put.payload_index]));
      }
      tensor.place.message = payload;
    }
    RETURN_IF_ERROR(AddOnce(put.name, field, std::move(tensor), &placed));
  }
  return placed;
}

absl::StatusOr<std::vector<bool>> InputFlags(
    const Program& program,
    const google::protobuf::RepeatedPtrField<std::string>& names) {
  absl::flat_hash_map<absl::string_view, size_t> positions;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    positions[program.inputs[i].name] = i;
  }
  std::vector<bool> flags(program.inputs.size());
  for (const std::string& name : names) {
    const auto found = positions.find(name);
    if (found == positions.end()) {
      return InvalidField(Reason::kNotFound, "input_gradients", name,
                          "an input of the program");
    }
    if (flags[found->second]) {
      return InvalidField(Reason::kDuplicate, "input_gradients",
                          absl::StrCat("'", name, "' twice"),
                          "each input once");
    }
    flags[found->second] = true;
  }
  return flags;
}

absl::StatusOr<KeptTensor> FindParameterIn(const SessionPart& session,
                                           const ProgramParameter& parameter) {
  const std::string path = absl::StrCat("parameters.", parameter.name);
  ASSIGN_OR_RETURN(KeptTensor tensor, session.Find(parameter.name, 0, path));
  TensorDescriptor found = tensor.descriptor;
  // The same bytes, seen as a weight.
  if (found.layout == Layout::kOIX) found.layout = Layout::kNCX;
  const TensorDescriptor expected = ParameterDescriptor(parameter);
  if (found == expected) return tensor;
  return InvalidField(
      Reason::kShapeMismatch, path, ToString(tensor.descriptor),
      absl::StrCat(ToString(expected), ", as the program says"));
}

}  // namespace convgrad

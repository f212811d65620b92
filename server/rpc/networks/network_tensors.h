// The tensors of programs' calls: those that a message names, and those that
// the session keeps.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/program/program.h"
#include "convgrad/v1/network.pb.h"
#include "proto/codec/payload_message.h"
#include "server/memory/region_registry.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/calls/session_part.h"

namespace convgrad {

// What a tensor is and where its bytes are.
struct PlacedTensor {
  TensorDescriptor descriptor;
  TensorPlace place;
};
using PlacedTensors = std::map<std::string, PlacedTensor>;

// Returns the tensors that `message` names; several may name one payload.
// `path` is the field's name in errors. A null `registry` has no regions.
// Errors: kInvalidArgument; kNotFound; kUnimplemented for other sources.
absl::StatusOr<PlacedTensors> PlaceNamed(
    const google::protobuf::RepeatedPtrField<v1::NamedValue>& message,
    std::vector<PayloadView> payloads, const std::string& path,
    const SessionPart& session, const RegionRegistry* registry);

// Returns for each of the program's inputs whether `names` has it.
// Errors: kInvalidArgument for a name that is no input's, or comes twice.
absl::StatusOr<std::vector<bool>> InputFlags(
    const Program& program,
    const google::protobuf::RepeatedPtrField<std::string>& names);

// Returns where a kept tensor's bytes are, to be read.
TensorPlace PlaceOf(const KeptTensor& tensor);

// Returns the kept tensor that `parameter` is in this session.
// Errors: kNotFound; kInvalidArgument if its dtype, dims or layout differ.
absl::StatusOr<KeptTensor> FindParameterIn(const SessionPart& session,
                                           const ProgramParameter& parameter);

// Returns the name that the session keeps `what` of a parameter under, as
// network.proto says: "conv1.weight#gradient".
std::string NameOfKept(absl::string_view parameter, absl::string_view what);

}  // namespace convgrad

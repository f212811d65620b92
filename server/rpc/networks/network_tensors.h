// These functions find the tensors of network calls: the tensors that a message
// names and the tensors that the session keeps.
//
// Thread-compatible: one call owns all arguments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/program/program.h"
#include "proto/codec/network_codec.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/calls/call_session.h"
#include "server/rpc/tensors/tensor_resolver.h"

namespace convgrad {

// `PlacedTensor` is a tensor's descriptor and the place of its bytes.
struct PlacedTensor {
  TensorDescriptor descriptor;
  TensorPlace place;
};
using PlacedTensors = std::map<std::string, PlacedTensor>;

// Returns the tensors of the list `field` by their names.
// Errors: those of CheckName and of TensorResolver.
absl::StatusOr<PlacedTensors> PlaceNamed(const std::vector<NamedTensor>& named,
                                         const std::string& field,
                                         TensorResolver* resolver);

// Returns for each input of the program whether `names` contains it.
// Errors: kInvalidArgument if a name is not an input or comes twice.
absl::StatusOr<std::vector<bool>> InputFlags(
    const Program& program,
    const google::protobuf::RepeatedPtrField<std::string>& names);

// Returns the name under which the session keeps `what` of a parameter, as
// network.proto defines it, such as "conv1.weight#gradient".
std::string NameOfKept(absl::string_view parameter, absl::string_view what);

}  // namespace convgrad

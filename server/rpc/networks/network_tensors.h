// The tensors of programs' calls: those that a message names, and those that
// the session keeps.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/program/program.h"
#include "proto/codec/network_codec.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/calls/session_part.h"
#include "server/rpc/tensors/tensor_resolver.h"

namespace convgrad {

// What a tensor is and where its bytes are.
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

// Returns for each of the program's inputs whether `names` has it.
// Errors: kInvalidArgument for a name that is no input's, or comes twice.
absl::StatusOr<std::vector<bool>> InputFlags(
    const Program& program, const std::vector<std::string>& names);

// Returns the kept tensor that `parameter` is in this session.
// Errors: kNotFound; kInvalidArgument if its dtype, dims or layout differ.
absl::StatusOr<KeptTensor> FindParameterIn(const SessionPart& session,
                                           const ProgramParameter& parameter);

// Returns the name that the session keeps `what` of a parameter under, as
// network.proto says: "conv1.weight#gradient".
std::string NameOfKept(absl::string_view parameter, absl::string_view what);

}  // namespace convgrad

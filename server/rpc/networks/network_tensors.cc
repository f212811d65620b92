#include "server/rpc/networks/network_tensors.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
std::string NameOfKept(absl::string_view parameter, absl::string_view what) {
  return absl::StrCat(parameter, "#", what);
}

absl::StatusOr<PlacedTensors> PlaceNamed(const std::vector<NamedTensor>& named,
                                         const std::string& field,
                                         TensorResolver* resolver) {
  PlacedTensors placed;
  for (size_t i = 0; i < named.size(); ++i) {
    const std::string path = absl::StrCat(field, "[", i, "]");
    RETURN_IF_ERROR(CheckName(named[i].name, path + ".name"));
    PlacedTensor& tensor = placed[named[i].name];
    const TensorSource& source = named[i].source;
    if (source.kept) {
      ASSIGN_OR_RETURN(const KeptTensor kept,
                       resolver->Find(*source.kept, path + ".tensor"));
      tensor = {kept.descriptor, PlaceOf(kept)};
    } else {
      ASSIGN_OR_RETURN(tensor.place, resolver->Place(source, path + ".tensor"));
      tensor.descriptor = *named[i].descriptor;
    }
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

}  // namespace convgrad

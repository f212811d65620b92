#include "server/rpc/tensors/tensor_resolver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/kept_tensors.h"

namespace convgrad {
namespace {

// Errors don't contain the region's id. They may be logged, and every client
// that knows the id may use the region.
absl::StatusOr<TensorPlace> PlaceInRegion(const RegionRange& range,
                                          const std::string& path,
                                          const RegionRegistry* regions) {
  if (regions == nullptr) {
    return Unsupported(path + ".region", "",
                       "inline, since this server offers no regions "
                       "(--regions_listen)");
  }
  std::shared_ptr<const Region> region = regions->Find(range.region_id);
  if (region == nullptr) {
    return NotFound(path + ".region.region_id", "an id that no region has",
                    "that of a region of this server, whose side connection "
                    "is open");
  }
  // The codec has checked that this sum doesn't overflow.
  if (range.byte_offset + range.byte_length > region->size()) {
    return OutOfRange(
        path + ".region.byte_offset",
        absl::StrCat("bytes ", range.byte_offset, " to ",
                     range.byte_offset + range.byte_length),
        absl::StrCat("an end within the region's ", region->size(), " bytes"));
  }
  TensorPlace place;
  place.data = region->data() + range.byte_offset;
  place.owner = std::move(region);
  place.is_shared = true;
  return place;
}

}  // namespace

TensorPlace PlaceOf(const KeptTensor& tensor) {
  return {nullptr, tensor.bytes, tensor.bytes->data(), tensor.bytes->id()};
}

TensorResolver::TensorResolver(CallSession* session,
                               const RegionRegistry* regions,
                               std::vector<PayloadView> payloads)
    : session_(*session), regions_(regions) {
  for (PayloadView& payload : payloads) {
    payloads_.push_back(std::make_shared<PayloadView>(std::move(payload)));
  }
}

absl::StatusOr<KeptTensor> TensorResolver::Find(const KeptName& name,
                                                const std::string& path) const {
  const std::string field = path + ".kept";
  RETURN_IF_ERROR(session_.CheckId(name.session_id, field));
  return session_.Find(name.tensor_id, name.version, field + ".tensor_id");
}

absl::StatusOr<TensorPlace> TensorResolver::Place(const TensorSource& source,
                                                  const std::string& path) {
  if (source.region) return PlaceInRegion(*source.region, path, regions_);
  TensorPlace place;
  if (source.kept) {
    ASSIGN_OR_RETURN(const KeptTensor tensor, Find(*source.kept, path));
    place = PlaceOf(tensor);
  } else if (source.payload_index >= 0) {
    place.message = payloads_[source.payload_index];
  }
  return place;
}

absl::Status TensorResolver::Complete(v1::ConvOperation* operation) const {
  for (const KeptReference& reference : KeptReferencesOf(*operation)) {
    const auto& [session_id, tensor_id, version] = reference.name;
    RETURN_IF_ERROR(session_.CheckId(session_id, reference.path + ".kept"));
    // The tensor of a sum may not exist yet.
    if (!reference.operand && !session_.state().tensors.contains(tensor_id)) {
      continue;
    }
    ASSIGN_OR_RETURN(const KeptTensor tensor,
                     Find(reference.name, reference.path));
    RETURN_IF_ERROR(CompleteKept(reference, tensor.descriptor, operation));
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorPlaces> TensorResolver::Places(
    const DecodedOperation& decoded, Reservation* paid) {
  TensorPlaces places;
  for (Operand which : kAllOperands) {
    ASSIGN_OR_RETURN(places.operands.emplace_back(),
                     Place(decoded.sources[PositionOf(which)],
                           absl::StrCat("operation.operands.", NameOf(which))));
  }
  const auto& results = decoded.operation.results;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string path = absl::StrCat("operation.results[", i, "]");
    TensorSource source;
    source.region = decoded.result_regions[i];
    const std::optional<KeptResult>& kept = decoded.kept_results[i];
    ASSIGN_OR_RETURN(
        places.results.emplace_back(),
        kept ? PlaceKept(results[i].descriptor, *kept, path + ".kept", paid)
             : Place(source, path));
  }
  return places;
}

absl::StatusOr<TensorPlace> TensorResolver::PlaceKept(
    const TensorDescriptor& descriptor, const KeptResult& result,
    const std::string& path, Reservation* paid) {
  RETURN_IF_ERROR(session_.CheckId("", path));
  RETURN_IF_ERROR(session_.CheckChange(path));
  RETURN_IF_ERROR(CheckName(result.name, path + ".tensor_id"));
  // Complete has checked the layouts; blocked layouts may still differ in their
  // groups, which Add checks.
  return result.adds ? session_.Add(result.name, descriptor, path, paid)
                     : session_.Write(result.name, descriptor, paid);
}

}  // namespace convgrad

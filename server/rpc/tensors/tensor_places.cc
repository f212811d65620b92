#include "server/rpc/tensors/tensor_places.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
// The id isn't repeated in errors, which may be logged: who has it may use the
// region.
absl::StatusOr<TensorPlace> PlaceInRegion(const RegionRange& range,
                                          const std::string& path,
                                          const RegionRegistry* registry) {
  if (registry == nullptr) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     {Reason::kUnsupported, path + ".region", "",
                      "inline, since this server offers no regions "
                      "(--regions_listen)"});
  }
  std::shared_ptr<const Region> region = registry->Find(range.region_id);
  if (region == nullptr) {
    return MakeError(absl::StatusCode::kNotFound,
                     {Reason::kNotFound, path + ".region.region_id",
                      "an id that no region has",
                      "that of a region of this server, whose side connection "
                      "is open"});
  }
  // DecodeOperation has seen to it that this sum doesn't wrap.
  if (range.byte_offset + range.byte_length > region->size()) {
    return InvalidField(
        Reason::kOutOfRange, path + ".region.byte_offset",
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

absl::StatusOr<TensorPlaces> PlacesOf(const DecodedOperation& decoded,
                                      std::vector<PayloadView> payloads,
                                      const RegionRegistry* registry) {
  std::vector<std::shared_ptr<PayloadView>> messages;
  for (PayloadView& payload : payloads) {
    messages.push_back(std::make_shared<PayloadView>(std::move(payload)));
  }
  TensorPlaces places;
  places.operands.resize(kOperandCount);
  for (Operand which : kAllOperands) {
    const size_t position = PositionOf(which);
    TensorPlace& place = places.operands[position];
    const int payload = decoded.payload_index[position];
    if (payload >= 0) place.message = messages[payload];
    const auto& range = decoded.regions.operands[position];
    if (!range) continue;
    ASSIGN_OR_RETURN(
        place, PlaceInRegion(*range,
                             absl::StrCat("operation.operands.", NameOf(which)),
                             registry));
  }
  const auto& ranges = decoded.regions.results;
  places.results.resize(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (!ranges[i]) continue;
    ASSIGN_OR_RETURN(
        places.results[i],
        PlaceInRegion(*ranges[i], absl::StrCat("operation.results[", i, "]"),
                      registry));
  }
  return places;
}

int64_t RegionOperandBytes(const DecodedOperation& decoded) {
  int64_t bytes = 0;
  for (const auto& range : decoded.regions.operands) {
    if (range) bytes += range->byte_length;
  }
  return bytes;
}

}  // namespace convgrad

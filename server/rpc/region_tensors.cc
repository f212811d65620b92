#include "server/rpc/region_tensors.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// `path` names the tensor. The id isn't repeated in errors, which may be
// logged: who has it may use the region.
absl::StatusOr<RegionTensor> FindRange(const RegionRange& range,
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
  std::byte* data = region->data() + range.byte_offset;
  return RegionTensor{std::move(region), data, range.byte_length};
}

}  // namespace

int64_t RegionTensors::OperandBytes() const {
  int64_t bytes = 0;
  for (const auto& operand : operands) {
    if (operand) bytes += operand->size;
  }
  return bytes;
}

absl::StatusOr<RegionTensors> FindRegions(const RegionPlaces& places,
                                          const RegionRegistry* registry) {
  RegionTensors tensors;
  for (Operand operand : kAllOperands) {
    const auto& range = places.operands[static_cast<size_t>(operand)];
    if (!range) continue;
    ASSIGN_OR_RETURN(
        tensors.operands[static_cast<size_t>(operand)],
        FindRange(*range, absl::StrCat("operation.operands.", NameOf(operand)),
                  registry));
  }
  tensors.results.resize(places.results.size());
  for (size_t i = 0; i < places.results.size(); ++i) {
    if (!places.results[i]) continue;
    ASSIGN_OR_RETURN(
        tensors.results[i],
        FindRange(*places.results[i],
                  absl::StrCat("operation.results[", i, "]"), registry));
  }
  return tensors;
}

}  // namespace convgrad

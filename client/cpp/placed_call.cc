#include "client/cpp/placed_call.h"

#include <algorithm>
#include <utility>

#include "backends/core/status.h"

namespace convgrad {

absl::StatusOr<PlacedCall> PlaceInRegion(OperationCall call,
                                         const std::string& address) {
  RETURN_IF_ERROR(Validate(call.operation));
  int64_t bytes = 0;
  for (const auto& operand : call.operands) {
    bytes += SharedRegion::AllocatedBytes(std::ssize(operand));
  }
  for (const ResultRequest& result : call.operation.results) {
    bytes += SharedRegion::AllocatedBytes(*ByteSize(result.descriptor));
  }
  PlacedCall placed{nullptr, std::move(call)};
  // The server refuses a region of 0 bytes.
  ASSIGN_OR_RETURN(placed.region,
                   SharedRegion::Connect(address, std::max<int64_t>(bytes, 1)));
  OperationCall& own = placed.call;
  own.region = placed.region.get();
  for (auto& operand : own.operands) {
    ASSIGN_OR_RETURN(const absl::Span<std::byte> copy,
                     placed.region->Allocate(std::ssize(operand)));
    std::copy(operand.begin(), operand.end(), copy.begin());
    operand = copy;
  }
  own.destinations.clear();
  for (const ResultRequest& result : own.operation.results) {
    ASSIGN_OR_RETURN(own.destinations.emplace_back(),
                     placed.region->Allocate(*ByteSize(result.descriptor)));
  }
  return placed;
}

}  // namespace convgrad

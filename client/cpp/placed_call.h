// Calls whose tensors are put into a region of their own.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/shared_region.h"

namespace convgrad {

// Move-only; the call is good as long as this lives.
struct PlacedCall {
  std::unique_ptr<SharedRegion> region;  // null: the call is as it was
  OperationCall call;
};

// Returns `call` with its operands copied into a new region, from the server
// whose side socket is at `address`, and its results to come there
// (call.destinations).
// Errors: kInvalidArgument for an operation that is none; as
// SharedRegion::Connect.
absl::StatusOr<PlacedCall> PlaceInRegion(OperationCall call,
                                         const std::string& address);

}  // namespace convgrad

// `PlaceInRegion` moves a call's tensors into a shared region made for it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/operation_call.h"
#include "client/cpp/shared_region.h"

namespace convgrad {

// Move-only; owns the region that `call` refers to.
struct PlacedCall {
  std::unique_ptr<SharedRegion> region;  // null: the call is unchanged
  OperationCall call;
};

// Gets a new region from the server whose side socket is at `address`, and
// returns `call` with its operands copied there and its results placed there
// (call.destinations).
// Errors: kInvalidArgument for an invalid operation; as SharedRegion::Connect.
absl::StatusOr<PlacedCall> PlaceInRegion(OperationCall call,
                                         const std::string& address);

}  // namespace convgrad

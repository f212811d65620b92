// Where a request's tensors are: in its message or in shared memory.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "server/memory/region_registry.h"
#include "server/memory/tensor_place.h"

namespace convgrad {

// Returns the places of a convolution's operands, by Operand, and of its
// results, in order. A null `registry` has no regions.
// Errors: kUnimplemented for any region if `registry` is null; kNotFound,
// reason NOT_FOUND, for an id that isn't registered, be it never, no more or
// not here; kInvalidArgument, reason OUT_OF_RANGE, for bytes beyond the
// region's end.
absl::StatusOr<TensorPlaces> PlacesOf(const DecodedOperation& decoded,
                                      std::vector<PayloadView> payloads,
                                      const RegionRegistry* registry);

// Returns where the bytes of one tensor in a region are; `path` names it.
// Errors: as above.
absl::StatusOr<TensorPlace> PlaceInRegion(const RegionRange& range,
                                          const std::string& path,
                                          const RegionRegistry* registry);

// Returns the sum of the sizes of the operands that are in regions.
int64_t RegionOperandBytes(const DecodedOperation& decoded);

}  // namespace convgrad

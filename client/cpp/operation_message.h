// Encodes calls as request messages and decodes response messages as replies.
// Internal to the client.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/borrowed_slices.h"
#include "client/cpp/operation_call.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/region_places.h"

namespace convgrad {

// Returns which tensors of the call lie in its region; `results` has an entry
// for each result.
// Errors: kInvalidArgument for an operand or destination whose size differs
// from its tensor's, or a destination without a result.
absl::StatusOr<RegionPlaces> PlacesOf(const OperationCall& call);

// Returns slices of `borrowed` over the operands that are neither in a region
// nor kept.
std::vector<grpc::Slice> PayloadsOf(const OperationCall& call,
                                    const RegionPlaces& places,
                                    const BorrowedSlices& borrowed);

// Returns the request message; `payloads` are those of PayloadsOf.
// Errors: kResourceExhausted if it is too large for a message.
absl::StatusOr<grpc::ByteBuffer> EncodeRequest(
    const OperationCall& call, const RegionPlaces& places,
    std::vector<grpc::Slice> payloads);

// Returns the reply without its times. Empties `*message`.
// Errors: kInternal if the response doesn't fit the call.
absl::StatusOr<OperationReply> DecodeReply(const OperationCall& call,
                                           const RegionPlaces& places,
                                           grpc::ByteBuffer* message);

}  // namespace convgrad

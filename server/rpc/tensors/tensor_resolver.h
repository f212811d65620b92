// From a tensor of a request to the place of its bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "server/memory/region_registry.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/calls/session_part.h"

namespace convgrad {

// Returns the place of a kept tensor's bytes, to be read.
TensorPlace PlaceOf(const KeptTensor& tensor);

// `TensorResolver` finds where the tensors of one request are: in its message,
// in a region or in its session. Owned by one call.
class TensorResolver {
 public:
  // `payloads` are those of the message. `session` may be that of a call of no
  // session, which keeps nothing; a null `regions` has none. Both outlive this.
  TensorResolver(SessionPart* session, const RegionRegistry* regions,
                 std::vector<PayloadView> payloads = {});

  // Returns the kept tensor that the field `path` + ".kept" names.
  // Errors: kInvalidArgument if it names another session; kNotFound.
  absl::StatusOr<KeptTensor> Find(const KeptName& name,
                                  const std::string& path) const;

  // Returns the place of a tensor, which `path` names in errors.
  // Errors: those of Find; kUnimplemented for a region if there are none;
  // kNotFound, reason NOT_FOUND, for a region's id that isn't registered, be it
  // never, no more or not here; kInvalidArgument, reason OUT_OF_RANGE, for
  // bytes beyond the region's end.
  absl::StatusOr<TensorPlace> Place(const TensorSource& source,
                                    const std::string& path);

  // Completes what a convolution leaves unset of kept tensors.
  // Errors: those of Find and of CompleteKept.
  absl::Status Complete(v1::ConvOperation* operation) const;

  // Returns the places of a convolution's operands, by Operand, and of its
  // results, in order. Takes the memory of kept results, out of `*paid` as far
  // as that goes.
  // Errors: those of Place; kInvalidArgument if the call can't keep results;
  // kResourceExhausted.
  absl::StatusOr<TensorPlaces> Places(const DecodedOperation& decoded,
                                      Reservation* paid);

 private:
  absl::StatusOr<TensorPlace> PlaceKept(const TensorDescriptor& descriptor,
                                        const KeptResult& result,
                                        const std::string& path,
                                        Reservation* paid);

  SessionPart& session_;
  const RegionRegistry* const regions_;
  // Shared, because several tensors may name one.
  std::vector<std::shared_ptr<PayloadView>> payloads_;
};

}  // namespace convgrad

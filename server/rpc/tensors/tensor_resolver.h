// `TensorResolver` finds the place of the bytes of each tensor of a request: in
// the message, in a region or in the session.
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
#include "server/rpc/calls/call_session.h"

namespace convgrad {

// Returns the place of a kept tensor's bytes. The caller may only read them.
TensorPlace PlaceOf(const KeptTensor& tensor);

// `TensorResolver` is owned by one call, and isn't thread-safe.
class TensorResolver {
 public:
  // `session` isn't null; for a call without a session it is empty
  // (CallSession::in_session). `regions` is null if the server offers no
  // regions. Both must outlive this object. `payloads` are those of the
  // message.
  TensorResolver(CallSession* session, const RegionRegistry* regions,
                 std::vector<PayloadView> payloads = {});

  // Returns the kept tensor that the field `path` + ".kept" names.
  // Errors: kInvalidArgument if it names another session; kNotFound.
  absl::StatusOr<KeptTensor> Find(const KeptName& name,
                                  const std::string& path) const;

  // Returns the place of a tensor, which `path` names in errors.
  // Errors: those of Find; kUnimplemented for a region if the server offers
  // none; kNotFound, reason NOT_FOUND, if no region with this id is registered
  // here now; kInvalidArgument, reason OUT_OF_RANGE, for bytes beyond the
  // region's end.
  absl::StatusOr<TensorPlace> Place(const TensorSource& source,
                                    const std::string& path);

  // Sets the unset fields (dtype, layout, dims) of operands of `*operation`
  // that are kept tensors, and of results that are added to kept tensors.
  // Errors: those of Find and of CompleteKept.
  absl::Status Complete(v1::ConvOperation* operation) const;

  // Returns the places of a convolution's operands, by Operand, and of its
  // results, in order. Takes the memory of kept results, first from `*paid`.
  // Errors: those of Place; kInvalidArgument if the call can't keep results;
  // kResourceExhausted.
  absl::StatusOr<TensorPlaces> Places(const DecodedOperation& decoded,
                                      Reservation* paid);

 private:
  absl::StatusOr<TensorPlace> PlaceKept(const TensorDescriptor& descriptor,
                                        const KeptResult& result,
                                        const std::string& path,
                                        Reservation* paid);

  CallSession& session_;
  const RegionRegistry* const regions_;
  // Shared, because several tensors may name the same payload.
  std::vector<std::shared_ptr<PayloadView>> payloads_;
};

}  // namespace convgrad

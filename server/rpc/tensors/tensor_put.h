// What one put writes into its session, however its bytes come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/codec/session_codec.h"
#include "server/rpc/calls/session_part.h"
#include "server/rpc/tensors/tensor_resolver.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Owned by its call: one step after the other.
class TensorPut {
 public:
  // Returns the bytes of the budget that tensors of their own memory take: all
  // but those that are put by their digest. Saturates.
  static int64_t CapacityFor(const std::vector<DecodedPut>& puts);

  // `session` is the change's, `resolver` finds what isn't streamed; all
  // outlive this but `resolver`.
  TensorPut(SessionPart* session, OpSample* sample, TensorResolver resolver)
      : session_(session), sample_(sample), resolver_(std::move(resolver)) {}

  // Finds the bytes of what isn't streamed, takes the memory of all that isn't
  // put by digest, and promises it to the session. `paid` is as in
  // KeptMemory::Take. Errors name a field of the PutTensorsRequest:
  // kInvalidArgument; kNotFound; kResourceExhausted.
  absl::Status Begin(std::vector<DecodedPut> puts, Reservation* paid);

  // In the request's order.
  const std::vector<DecodedPut>& puts() const { return puts_; }
  // Returns where the bytes of puts()[i] belong; null if there are none.
  std::byte* data(size_t i) const;

  // Copies what isn't streamed and checks digests, which stand for their bytes
  // from now on. To be called once all streamed bytes are there; takes as long
  // as reading all bytes does. Errors: kInvalidArgument.
  absl::Status Finish();

 private:
  absl::StatusOr<KeptTensor> Place(const DecodedPut& put,
                                   const std::string& path, Reservation* paid);
  absl::StatusOr<KeptTensor> FindByDigest(const DecodedPut& put,
                                          const std::string& path);

  SessionPart* const session_;
  OpSample* const sample_;
  TensorResolver resolver_;
  std::vector<DecodedPut> puts_;
  // Of the bytes that Finish copies, by put.
  std::vector<TensorPlace> sources_;
};

}  // namespace convgrad

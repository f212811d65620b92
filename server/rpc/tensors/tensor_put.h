// `TensorPut` writes the tensors of a put into its session, from one message or
// from a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/codec/session_codec.h"
#include "server/rpc/calls/call_session.h"
#include "server/rpc/tensors/tensor_resolver.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// `TensorPut` is thread-compatible; owned by its call.
class TensorPut {
 public:
  // Returns the bytes of the budget that the tensors take. Tensors put by
  // digest take none. Saturates.
  static int64_t CapacityFor(const std::vector<DecodedPut>& puts);

  // `session` is the session of the change. `resolver` finds the tensors that
  // aren't streamed. `session` and `sample` outlive this.
  TensorPut(CallSession* session, OpSample* sample, TensorResolver resolver)
      : session_(session), sample_(sample), resolver_(std::move(resolver)) {}

  // Finds the bytes of the tensors that aren't streamed, takes the memory of
  // all tensors that aren't put by digest, and promises them to the session.
  // `paid` is as in KeptMemory::Take. Errors name a field of the
  // PutTensorsRequest: kInvalidArgument; kNotFound; kResourceExhausted.
  absl::Status Begin(std::vector<DecodedPut> puts, Reservation* paid);

  // The tensors in the request's order.
  const std::vector<DecodedPut>& puts() const { return puts_; }
  // Returns the memory for the bytes of puts()[i]; null if the tensor has none.
  std::byte* data(size_t i) const;

  // Copies the tensors that aren't streamed and checks digests. From then on
  // the server finds the tensors by their digests. Call it when all streamed
  // bytes have come. It takes as long as reading all bytes.
  // Errors: kInvalidArgument.
  absl::Status Finish();

 private:
  absl::StatusOr<KeptTensor> Place(const DecodedPut& put,
                                   const std::string& path, Reservation* paid);
  absl::StatusOr<KeptTensor> FindByDigest(const DecodedPut& put,
                                          const std::string& path);

  CallSession* const session_;
  OpSample* const sample_;
  TensorResolver resolver_;
  std::vector<DecodedPut> puts_;
  // The sources of the bytes that Finish copies, by put.
  std::vector<TensorPlace> sources_;
};

}  // namespace convgrad

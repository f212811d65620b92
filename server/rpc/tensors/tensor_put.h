// What one put writes into its session, however its bytes come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/codec/session_codec.h"
#include "server/rpc/calls/call_services.h"
#include "server/rpc/calls/session_part.h"

namespace convgrad {

// Owned by its call: one step after the other.
class TensorPut {
 public:
  // Returns the bytes of the budget that tensors of their own memory take: all
  // but those that are put by their digest. Saturates.
  static int64_t CapacityFor(const std::vector<DecodedPut>& puts);

  // `session` is the change's; all three outlive this.
  TensorPut(SessionPart* session, const CallServices& services,
            OpSample* sample)
      : session_(session), services_(services), sample_(sample) {}

  // Finds what is put by digest, takes the memory of everything else, promises
  // it all to the session and copies what lies in regions. `paid` is as in
  // KeptMemory::Take. Errors name a field of the PutTensorsRequest:
  // kInvalidArgument; kNotFound; kResourceExhausted.
  absl::Status Begin(std::vector<DecodedPut> puts, Reservation* paid);

  // In the request's order; those that have no payload and aren't streamed are
  // there.
  const std::vector<DecodedPut>& puts() const { return puts_; }
  // Returns where the bytes of puts()[i] belong; null if there are none.
  std::byte* data(size_t i) const;

  // Checks digests, which stand for their bytes from now on. To be called once
  // all bytes are there. Errors: kInvalidArgument.
  absl::Status Finish();

 private:
  absl::StatusOr<KeptTensor> Place(const DecodedPut& put,
                                   const std::string& path, Reservation* paid);
  absl::StatusOr<KeptTensor> FindByDigest(const DecodedPut& put,
                                          const std::string& path);

  SessionPart* const session_;
  const CallServices& services_;
  OpSample* const sample_;
  std::vector<DecodedPut> puts_;
};

}  // namespace convgrad

// The bytes of one operation: its operands, copied once out of the message into
// aligned memory or read in shared memory, and its results, on their way into
// the response or straight into shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "grpcpp/support/slice.h"
#include "proto/codec.h"
#include "proto/payload_message.h"
#include "server/memory/call_memory.h"
#include "server/rpc/region_tensors.h"

namespace convgrad {

// Where the bytes of a request are. Move-only.
struct RequestBytes {
  std::vector<PayloadView> payloads;
  RegionTensors regions;
};

// Thread-compatible.
class OperationBuffers {
 public:
  explicit OperationBuffers(std::shared_ptr<CallMemory> memory);

  // Copies the payloads that `decoded.operation` still has operands for, takes
  // memory for its results, and lets go of all payloads. What lies in a region,
  // aligned, is used there. `reservation` covers the message; it is raised
  // where the results need more, and is what operands and results take
  // afterwards.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED if that can never fit the
  // budget, BUSY if it doesn't now.
  absl::Status Fill(const DecodedOperation& decoded, RequestBytes request,
                    Reservation* reservation);

  // Returns the pointers for a backend; valid until the next call of another
  // member.
  const RunBuffers& run_buffers() const { return run_buffers_; }
  // Whether the operand lies where its client can't write to it.
  bool OwnsOperand(Operand operand) const;
  int64_t copied_bytes() const { return copied_bytes_; }
  int64_t result_bytes() const { return result_bytes_; }

  // Lets go of the operands and hands the results over: those without a region,
  // in order, as slices that give buffer and budget back when gRPC has sent
  // them; the others lie where they were wanted. `reservation` is empty
  // afterwards.
  std::vector<grpc::Slice> TakeResults(Reservation* reservation);

  // Gives everything back.
  void Clear();

 private:
  absl::Status Raise(const DecodedOperation& decoded,
                     const std::vector<PayloadView>& payloads,
                     Reservation* reservation) const;
  absl::Status CopyPayloads(const DecodedOperation& decoded,
                            std::vector<PayloadView> payloads);
  absl::Status PlaceOperands(const DecodedOperation& decoded);
  absl::Status PlaceResults(const ConvOperation& operation);

  const std::shared_ptr<CallMemory> memory_;
  RegionTensors regions_;
  // By payload, then what had to be copied out of regions.
  std::vector<Buffer> operands_;
  // In the order of operation.results; empty where the region serves.
  std::vector<Buffer> results_;
  RunBuffers run_buffers_;
  int64_t copied_bytes_ = 0;
  int64_t result_bytes_ = 0;
};

}  // namespace convgrad

// The bytes of one operation: its operands, copied once out of the message into
// aligned memory, in the layout that its plan wants, or read in shared memory;
// and its results, on their way into the response or straight into shared
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/conv_operation.h"
#include "grpcpp/support/slice.h"
#include "proto/codec.h"
#include "proto/payload_message.h"
#include "server/memory/call_memory.h"
#include "server/rpc/region_tensors.h"
#include "server/scheduling/job.h"

namespace convgrad {

// Where the bytes of a request are. Move-only.
struct RequestBytes {
  std::vector<PayloadView> payloads;
  RegionTensors regions;
};

// Thread-compatible.
class OperationBuffers final : public OperandSource {
 public:
  explicit OperationBuffers(std::shared_ptr<CallMemory> memory);

  // Keeps the payloads that `decoded.operation` still has operands for, for
  // BringIn, and lets go of the others; takes memory for its results. What lies
  // in a region, aligned, is used there. `reservation` covers the message; it
  // is raised where operands and results need more, and is what they take
  // afterwards. It must outlive the operands.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED if that can never fit the
  // budget, BUSY if it doesn't now.
  absl::Status Accept(const DecodedOperation& decoded, RequestBytes request,
                      Reservation* reservation);

  // Copies the payloads and lets go of them. Not every one is taken in as the
  // plan would have it: only where the budget has room for that form now. The
  // pointers are valid until the next call of another member.
  absl::StatusOr<RunBuffers> BringIn(const Plan* plan, const Backend& backend,
                                     int threads) override;

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
  // An operand's bytes on their way in.
  struct Arrival {
    PayloadView payload;
    std::vector<Operand> operands;  // that read it
    Buffer copy;
  };

  absl::Status Raise(const DecodedOperation& decoded,
                     Reservation* reservation) const;
  void KeepNeeded(const DecodedOperation& decoded,
                  std::vector<PayloadView> payloads);
  // Copies an arrival as it is, or with `intake` if there is one.
  absl::Status Copy(const ScatteredReorder* intake, const Backend& backend,
                    int threads, Arrival* arrival);
  // Returns `intake`, or null if there is no memory for what it makes.
  const ScatteredReorder* IfAffordable(const ScatteredReorder* intake,
                                       int64_t payload_bytes);
  absl::Status PlaceRegionOperands(const ConvOperation& operation);
  absl::Status PlaceResults(const ConvOperation& operation);

  const std::shared_ptr<CallMemory> memory_;
  RegionTensors regions_;
  Reservation* reservation_ = nullptr;
  std::vector<Arrival> arrivals_;
  // What had to be copied out of regions.
  std::vector<Buffer> region_copies_;
  // In the order of operation.results; empty where the region serves.
  std::vector<Buffer> results_;
  RunBuffers run_buffers_;
  int64_t copied_bytes_ = 0;
  int64_t result_bytes_ = 0;
};

}  // namespace convgrad

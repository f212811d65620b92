// `StreamedRun` runs one operation as a stream: it sends frames over the
// caller's memory while frames of the results arrive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/borrowed_slices.h"
#include "client/cpp/client.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/codec/stream_codec.h"
#include "proto/stream_slices.h"

namespace convgrad {

// NextMessage and Take may run on different threads at the same time, each of
// them one call at a time. Other calls need order.
class StreamedRun {
 public:
  // `call` and `borrowed` must outlive the run. Requires: a valid operation and
  // PlacesOf(call).ok().
  StreamedRun(const OperationCall& call, int64_t slice_items,
              const BorrowedSlices& borrowed);

  // Takes memory for the results. Call it first.
  // Errors: kResourceExhausted.
  absl::Status Allocate();
  // Returns the next message to send; nullopt after the last.
  std::optional<grpc::ByteBuffer> NextMessage();
  // Handles a received message. Errors: kInternal.
  absl::Status Take(grpc::ByteBuffer* received);
  // Returns the reply, all but `elapsed`, of a call that succeeded.
  // Errors: kInternal if it has no end.
  absl::StatusOr<OperationReply> Finish();

 private:
  absl::Status TakeFrame(const v1::ResultFrame& frame,
                         std::vector<PayloadView> payloads);
  absl::Status CheckEnd() const;

  const OperationCall& call_;
  const std::shared_ptr<const ConvOperation> operation_;
  const BatchSlices slices_;
  const BorrowedSlices& borrowed_;

  // The state of NextMessage.
  std::vector<OperandPiece> to_send_;  // in order; each in many frames
  size_t next_piece_ = 0;
  int64_t sent_bytes_ = 0;

  // The state of Take.
  OperationReply reply_;
  std::vector<absl::Span<std::byte>> targets_;  // by result
  std::vector<int64_t> received_;               // by result, so far
  std::optional<v1::StreamEnd> end_;
};

}  // namespace convgrad

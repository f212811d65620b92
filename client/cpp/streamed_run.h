// One operation as a stream: frames over the caller's memory go out while the
// results' frames come in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/mutex.h"
#include "backends/core/thread_order.h"
#include "client/cpp/borrowed_slices.h"
#include "client/cpp/client.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "proto/codec/stream_codec.h"
#include "proto/stream_slices.h"

namespace convgrad {

// gRPC calls OnWriteDone and OnReadDone on threads of its own, at most one of
// each at a time, and OnDone after the last: members are the writer's or the
// reader's, and need no lock.
class StreamedRun final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // All three outlive the run. Requires: a valid operation, and
  // PlacesOf(call).ok().
  StreamedRun(const OperationCall& call, int64_t slice_items,
              const BorrowedSlices& borrowed);

  // Takes memory for the results. Call it before FillContext.
  // Errors: kResourceExhausted.
  absl::Status Allocate();

  // Runs the call, whose `context` FillContext has set, and returns the reply,
  // all but `elapsed`. Errors: as Client::Run.
  absl::StatusOr<OperationReply> Run(grpc::ClientContext* context);

 private:
  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // To be called where a writer's or reader's step begins and ends: see
  // thread_order.h.
  void HandOverWriter() { HandedOver(&outgoing_); }
  void HandOverReader() { HandedOver(&incoming_); }
  // Sets what is written next; its head is small.
  void SetOutgoing(absl::StatusOr<grpc::ByteBuffer> message);
  // Lets go of what was written and sets the next frame, if there is one.
  bool NextFrame();
  absl::Status TakeMessage();
  absl::Status TakeFrame(const v1::ResultFrame& frame,
                         std::vector<PayloadView> payloads);
  absl::Status CheckEnd() const;

  const OperationCall& call_;
  const std::shared_ptr<const ConvOperation> operation_;
  const BatchSlices slices_;
  const BorrowedSlices& borrowed_;
  grpc::ClientContext* context_ = nullptr;

  // The writer's.
  std::vector<OperandPiece> to_send_;  // in order; each in many frames
  size_t next_piece_ = 0;
  grpc::ByteBuffer outgoing_;
  int64_t sent_bytes_ = 0;

  // The reader's.
  grpc::ByteBuffer incoming_;
  OperationReply reply_;
  std::vector<absl::Span<std::byte>> targets_;  // by result
  std::vector<int64_t> received_;               // by result, so far
  std::optional<v1::StreamEnd> end_;
  absl::Status bad_reply_;

  Mutex mutex_;
  CondVar changed_;
  std::optional<grpc::Status> rpc_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

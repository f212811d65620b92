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
#include "backends/core/mutex.h"
#include "backends/core/thread_order.h"
#include "client/cpp/client.h"
#include "client/cpp/loan.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "proto/codec/stream_codec.h"
#include "proto/stream_slices.h"

namespace convgrad {

// gRPC calls OnWriteDone and OnReadDone on its own threads, at most one of each
// at a time, and OnDone after the last. Each member belongs to either the
// writer or the reader and needs no lock.
class StreamedRun final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `call` and `loan` must outlive the run. Requires: a valid operation and
  // PlacesOf(call).ok().
  StreamedRun(const OperationCall& call, int64_t slice_items, const Loan& loan);

  // Allocates memory for the results. Call it before preparing the call.
  // Errors: kResourceExhausted.
  absl::Status Allocate();

  // Runs the call, which was prepared on `context`. Returns the reply without
  // `elapsed`. Errors: as Client::Run.
  absl::StatusOr<OperationReply> Run(grpc::ClientContext* context);

 private:
  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // Call these where a step of the writer or reader begins and ends: see
  // thread_order.h.
  void HandOverWriter() { HandedOver(&outgoing_); }
  void HandOverReader() { HandedOver(&incoming_); }
  // Sets the next message to write. Its head is small, so encoding can't fail.
  void SetOutgoing(absl::StatusOr<grpc::ByteBuffer> message);
  // Releases the written frame and sets the next one. Returns false if there is
  // none.
  bool NextFrame();
  absl::Status TakeMessage();
  absl::Status TakeFrame(const v1::ResultFrame& frame,
                         std::vector<PayloadView> payloads);
  absl::Status CheckEnd() const;

  const OperationCall& call_;
  const std::shared_ptr<const ConvOperation> operation_;
  const BatchSlices slices_;
  const Loan& loan_;
  grpc::ClientContext* context_ = nullptr;

  // Owned by the writer.
  std::vector<OperandPiece> to_send_;  // in order; each in many frames
  size_t next_piece_ = 0;
  grpc::ByteBuffer outgoing_;
  int64_t sent_bytes_ = 0;

  // Owned by the reader.
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

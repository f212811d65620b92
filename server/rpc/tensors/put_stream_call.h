// PutTensorsStream: tensors that come in frames.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/codec/session_codec.h"
#include "server/rpc/calls/call.h"
#include "server/rpc/tensors/tensor_put.h"

namespace convgrad {

// Waits for its turn, for 64 KiB of memory, for the header, for the memory of
// all tensors and a frame, and then for one frame after the other. It never
// waits for two of these at once, so that its steps need no lock.
class PutStreamCall final : public Call {
 public:
  using Call::Call;

 private:
  void Start() override;
  void OnTurn(const ChangeOrder::Decision& decision) override;
  void OnMemory(const absl::Status& status) override;
  void OnReadDone(bool ok) override;
  void OnSendInitialMetadataDone(bool ok) override;
  void OnSlowClient() override;
  void Settle(const absl::Status& /*status*/) override { put_.reset(); }

  // Waits for the client's next message. To be called last.
  void Read();
  // Has the client send `bytes` from now on, in as many messages as it takes.
  void AllowClient(int64_t bytes);
  absl::Status TakeHeader();
  // Takes the memory that was granted.
  absl::Status Begin();
  absl::Status TakeFrame();
  void OnHalfClose();
  // Returns OK if every byte has come.
  absl::Status CheckComplete() const;
  // Moves `next_` on to bytes that are to come.
  void SkipWhatIsThere();
  // Answers. Requires: put_->Finish() was OK.
  void Commit();

  grpc::ByteBuffer message_;
  absl::Time read_start_;
  // When the client has to be through with what it sends.
  absl::Time client_until_;
  // What the header says, until there is memory for it.
  std::optional<std::vector<DecodedPut>> header_;
  std::optional<TensorPut> put_;
  // The next frame; behind the last tensor if there is none.
  v1::TensorFrame next_;
  // How the call ends unless its client has gone; set at the half-close.
  absl::Status failure_;
};

}  // namespace convgrad

// `PutStreamCall` handles PutTensorsStream: it receives tensors in frames.
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

// `PutStreamCall` waits for its turn, for 64 KiB of memory and for the header.
// Then it waits for the memory of all tensors and a frame, and for one frame
// after the other. It never waits for two of these at once, so it needs no
// lock.
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

  // Waits for the client's next message. Call it last.
  void Read();
  // Gives the client the time that `bytes` may take, from now on, in any number
  // of messages.
  void AllowClient(int64_t bytes);
  absl::Status TakeHeader();
  // Takes the memory of the tensors out of the granted memory.
  absl::Status Begin();
  absl::Status TakeFrame();
  void OnHalfClose();
  // Returns OK if every byte has come.
  absl::Status CheckComplete() const;
  // Advances `next_` past tensors that have no bytes left to come.
  void SkipWhatIsThere();
  // Answers. Requires: put_->Finish() was OK.
  void Commit();

  grpc::ByteBuffer message_;
  absl::Time read_start_;
  // The time by which the client must have sent its bytes.
  absl::Time client_until_;
  // The tensors of the header, until their memory is granted.
  std::optional<std::vector<DecodedPut>> header_;
  std::optional<TensorPut> put_;
  // The next frame. After the last one, its tensor is the number of tensors.
  v1::TensorFrame next_;
  // The status of the call unless its client has left; set at the half-close.
  absl::Status failure_;
};

}  // namespace convgrad

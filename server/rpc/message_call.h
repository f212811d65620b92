// A call of one message in and one message out.
#pragma once

#include <cstdint>

#include "server/rpc/call.h"

namespace convgrad {

class MessageCall : public Call {
 protected:
  // `operation` is what its work is counted as; "" if it isn't.
  MessageCall(const CallServices& services,
              grpc::GenericCallbackServerContext* context,
              absl::string_view method, Role role, absl::string_view operation);

  // Does what leads to one Answer or End. The message's memory is
  // `reservation()`.
  virtual void OnMessage(grpc::ByteBuffer* message) = 0;

  // Returns whether the call has a chance, before anything is read of it.
  virtual absl::Status CheckArrival() { return absl::OkStatus(); }

  // Counts payloads of `bytes` in the request as received.
  // Errors: kInvalidArgument if that is more than the client declared;
  // kResourceExhausted, reason LIMIT_EXCEEDED, if it is more than a message may
  // have.
  absl::Status CheckReceived(int64_t bytes);
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED.
  absl::Status CheckMessageBytes(absl::string_view what, int64_t bytes) const;

  OpSample* sample() final {
    return sample_.operation.empty() ? nullptr : &sample_;
  }
  void Settle(const absl::Status& status) override;

  // Of the call's operation.
  OpSample sample_;

 private:
  void Start() final;
  void OnMemory(const absl::Status& status) final;
  void OnReadDone(bool ok) final;
  void OnSendInitialMetadataDone(bool ok) final;
  void OnTurn(const ChangeOrder::Decision& decision) final;
  void OnSlowClient() final;

  // What the client declared, or the most that it may send.
  int64_t ExpectedBytes() const;

  // Payload bytes that the client declared, -1 if it didn't.
  int64_t declared_bytes_ = -1;
  absl::Time read_start_;
  grpc::ByteBuffer request_;
};

}  // namespace convgrad

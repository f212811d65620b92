// A call of one message in and one message out, of a session if its metadata
// says so.
#pragma once

#include <cstdint>

#include "server/rpc/call.h"
#include "server/rpc/session_part.h"

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
  // As Call::OnGone and Settle.
  virtual void OnAbandoned() {}
  virtual void LetGo(const absl::Status& /*status*/) {}

  // Ends the call with `response`. What a change of a session writes takes
  // effect now, unless the call's client has gone or its deadline is over.
  void Answer(grpc::ByteBuffer response);

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
  SessionPart& session() { return session_; }

  // Of the call's operation.
  OpSample sample_;

 private:
  void Start() final;
  void OnMemory(const absl::Status& status) final;
  void OnReadDone(bool ok) final;
  void OnSendInitialMetadataDone(bool ok) final;
  void OnGone() final;
  void OnSlowClient() final;
  void Settle(const absl::Status& status) final;

  // Returns whether the call may go on to wait for its turn.
  absl::Status EnterSession();
  void OnTurn(ChangeOrder::Decision decision);
  // What the client declared, or the most that it may send.
  int64_t ExpectedBytes() const;

  SessionPart session_;
  // Payload bytes that the client declared, -1 if it didn't.
  int64_t declared_bytes_ = -1;
  absl::Time read_start_;
  grpc::ByteBuffer request_;
};

}  // namespace convgrad

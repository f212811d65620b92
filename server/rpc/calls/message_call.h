// A call of one message in and one message out.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/codec/payload_message.h"
#include "server/rpc/calls/call.h"
#include "server/rpc/calls/message_arrival.h"

namespace convgrad {

// `MessageCall` waits for its turn, for the memory of its message and for the
// message, and then calls OnMessage once. A change of a session may have its
// message come before its turn (see ChangeOrder). Its states, and what it does
// in each, are the rows of arrival::kRows.
class MessageCall : public Call {
 public:
  using Call::Call;

 protected:
  // Does what leads to one Answer or End. The message's memory is
  // `reservation()`.
  virtual void OnMessage(grpc::ByteBuffer* message) = 0;

  // Returns whether the call has a chance, before anything is read of it.
  virtual absl::Status CheckArrival() { return absl::OkStatus(); }

  // Parses all of the request but its payloads into `*head`, checks and counts
  // what came, and returns the payloads.
  // Errors: those of SplitMessage, CheckMessageBytes, CheckCriticalFields and
  // CheckSession; kInvalidArgument if the payloads are more than the client
  // declared; kResourceExhausted, reason BUSY, if there is no memory to parse
  // the head.
  absl::StatusOr<std::vector<PayloadView>> Split(
      grpc::ByteBuffer* message, google::protobuf::Message* head);
  // Ends the call with `status`, or answers with `head` if that is OK.
  void Finish(absl::Status status, const google::protobuf::Message& head);

  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED.
  absl::Status CheckMessageBytes(absl::string_view what, int64_t bytes) const;

  void Settle(const absl::Status& status) override;

 private:
  void Start() final;
  void OnPrepare() final;
  void OnMemory(const absl::Status& status) final;
  void OnReadDone(bool ok) final;
  void OnSendInitialMetadataDone(bool ok) final;
  void OnTurn(const ChangeOrder::Decision& decision) final;
  void OnSlowClient() final;

  // Notes that the message is here, or why it won't come. To be called last:
  // the call may be gone when this returns.
  void EndMessage(const absl::Status& status);
  // Does what `arrival_` says, and what it says after that. The call may have
  // ended when this returns. Requires: a CallHold.
  void Do(arrival::Next next);
  // Has gRPC read the message.
  void Read();
  // Goes on. Requires: turn and message have both ended.
  void Proceed();
  // Has the session's next change prepare itself if it is this one's turn and
  // the memory is there: results and scratch are taken if there is room, not
  // waited for.
  void LetNextPrepare();

  // What the client declared, or the most that it may send.
  int64_t ExpectedBytes() const;

  // Whether the call has no tensors: its method limits the whole message.
  bool is_small() const { return method().max_bytes > 0; }
  // Returns how many bytes the payloads, or the small message, may have.
  int64_t max_bytes() const {
    return is_small() ? method().max_bytes : services().max_message_bytes;
  }

  // Payload bytes that the client declared, -1 if it didn't.
  int64_t declared_bytes_ = -1;
  absl::Time read_start_;
  grpc::ByteBuffer request_;
  MessageArrival arrival_;
};

}  // namespace convgrad

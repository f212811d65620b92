// `MessageCall` handles an RPC with one request message and one response
// message.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/status.h"
#include "proto/codec/payload_message.h"
#include "server/rpc/calls/call.h"
#include "server/rpc/calls/message_arrival.h"

namespace convgrad {

// `MessageCall` waits for its turn, then for the memory of its message, then
// for the message, and then calls OnMessage once. The server may read the
// message of a change before its turn (early admission, see ChangeOrder). The
// rows of arrival::kRows define its states and its actions in each state. Its
// virtual functions run on any thread, one at a time.
class MessageCall : public Call {
 public:
  using Call::Call;

 protected:
  // Handles the request message. An error ends the call. After OK, one Answer
  // or End must follow or have come; the call may be deleted. `reservation()`
  // pays for the message.
  virtual absl::Status OnMessage() = 0;

  // Returns an error if the server can refuse the call before it reads the
  // message.
  virtual absl::Status CheckArrival() { return absl::OkStatus(); }
  // Returns an error if the server can refuse the call when its turn has come.
  // A repeat of a change isn't refused.
  virtual absl::Status CheckTurn() { return absl::OkStatus(); }

  // Parses the request except its payloads into `*head`, checks and counts the
  // bytes, and returns the payloads.
  // Errors: those of SplitMessage, CheckMessageBytes and CheckCriticalFields;
  // kInvalidArgument if the payloads are more than the client declared;
  // kResourceExhausted, reason BUSY, if there is no memory to parse the head.
  absl::StatusOr<std::vector<PayloadView>> Split(
      google::protobuf::Message* head);
  // Returns the request of a method without payloads. Errors: those of Split.
  template <typename Request>
  absl::StatusOr<Request> Parse() {
    Request request;
    RETURN_IF_ERROR(Split(&request).status());
    return request;
  }
  // Answers with `head`, or ends the call with the error of JoinMessage.
  // Returns OK. Call it last: the call may be deleted when this returns.
  absl::Status AnswerWith(const google::protobuf::Message& head);
  // Ends the call with `status`, or answers with `head` if that is OK.
  void Finish(absl::Status status, const google::protobuf::Message& head);

  // Checks a request or response (`what`) of `bytes` bytes.
  // Errors: kResourceExhausted, reason LIMIT_EXCEEDED.
  absl::Status CheckMessageBytes(absl::string_view what, int64_t bytes) const;

  void Settle(const absl::Status& status) override;

 private:
  void Start() final;
  void OnEarlyAdmission() final;
  void OnMemory(const absl::Status& status) final;
  void OnReadDone(bool ok) final;
  void OnSendInitialMetadataDone(bool ok) final;
  void OnTurn(const ChangeOrder::Decision& decision) final;
  void OnSlowClient() final;

  // Records that the message has arrived, or the error if it won't. Call it
  // last: the call may be deleted when this returns.
  void EndMessage(const absl::Status& status);
  // Does the action `next` and the actions that follow from it. The call may
  // have ended when this returns. Requires: a CallHold.
  void Do(arrival::Next next);

  // The payload bytes that the client declared, or the most that it may send.
  int64_t ExpectedBytes() const;

  // Returns whether the call has no tensors, so that its method limits the
  // message.
  bool is_small() const { return method().max_bytes > 0; }
  // Returns the most bytes that the payloads, or the small message, may have.
  int64_t max_bytes() const {
    return is_small()
               ? method().max_bytes
               : std::min(services().config->max_message_bytes,
                          services().memory->largest_message_bytes.load());
  }

  // Payload bytes that the client declared; -1 if unknown.
  int64_t declared_bytes_ = -1;
  absl::Time read_start_;
  grpc::ByteBuffer request_;
  // The outcome of the wait for the turn. OnTurn sets it before it reports the
  // turn to `arrival_`. Do reads it after `arrival_` has returned kProceed. So
  // the lock of `arrival_` orders the two.
  ChangeOrder::Decision decision_ = ChangeOrder::Decision::Run();
  // The end of the message: OK, or why there is none. The same holds for
  // EndMessage, and Do reads it on kWithdraw as well, in EndMessage's thread.
  absl::Status message_status_;
  MessageArrival arrival_;
};

// `PlainCall` handles an RPC that needs no state of its own, by one function.
class PlainCall final : public MessageCall {
 public:
  // Does what OnMessage does.
  using Handler = absl::Status (*)(PlainCall* call);

  PlainCall(const Method& method, const CallServices& services,
            grpc::GenericCallbackServerContext* context, Handler handler)
      : MessageCall(method, services, context), handler_(handler) {}

  // The functions of a call that handlers use.
  using Call::AwaitSession;
  using Call::cancelled;
  using Call::client;
  using Call::End;
  using Call::permit;
  using Call::reservation;
  using Call::services;
  using Call::session;
  using Call::SessionOutcome;
  using MessageCall::AnswerWith;
  using MessageCall::Finish;
  using MessageCall::Parse;

 private:
  absl::Status OnMessage() override { return handler_(this); }

  const Handler handler_;
};

}  // namespace convgrad

// `SessionWire` makes the calls of a session over its connection. Internal to
// the client.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/connection.h"
#include "client/cpp/sessions/change_sender.h"
#include "client/cpp/sessions/fetched_tensor.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

// A call and its messages.
struct OutgoingCall {
  std::string method;
  // Begins an attempt: returns a function that returns the messages to send.
  std::function<Client::Connection::Messages()> begin;
  // Whether the method is a stream. Otherwise there is one message.
  bool is_stream = false;
  // Receives the messages of a stream's reply; null: the reply is one message.
  FetchedFrames* frames = nullptr;
  // The operation whose trace context and priority the call has; may be null.
  const OperationCall* call = nullptr;
};

// Returns a request of one message.
OutgoingCall InOneMessage(std::string method, grpc::ByteBuffer message);

// Thread-safe. A returned function is valid while this object and the arguments
// exist.
class SessionWire {
 public:
  // Errors: kInvalidArgument naming an option.
  static absl::StatusOr<std::unique_ptr<SessionWire>> Make(
      ClientOptions options);

  const RetryPolicy& retries() const { return retries_; }

  // Returns a function that makes the call in a given context and returns the
  // reply; an empty one if `request` has `frames`.
  ChangeSender::Send Sender(const OutgoingCall& request, absl::Time deadline);

  // Returns a change that makes the same call with copies of the messages.
  OwnedChange Own(const OutgoingCall& request);

  // Returns a function that sends a change that fails whatever the session
  // keeps.
  ChangeSender::Send VoidSender();

  // Returns how many payload bytes a message may have, if `bytes` are to be
  // sent. Asks the server, once, if the answer matters. Errors: the server's.
  absl::StatusOr<int64_t> MessageLimit(int64_t bytes, absl::Time deadline);

  // Make the calls of these names for the session `id`.
  // `epoch` is that of the client, or 0. Errors: kFailedPrecondition, reason
  // TAKEN_OVER, if another client has resumed the session since.
  absl::Status Renew(const std::string& id, int64_t epoch, absl::Time deadline);
  absl::Status Close(const std::string& id, int64_t epoch, absl::Time deadline);

  // Makes an idempotent call, and repeats it by the retry policy.
  template <typename Response>
  absl::StatusOr<Response> Call(const std::string& method,
                                const google::protobuf::Message& request,
                                absl::Time deadline) {
    return retries_.Persist(
        deadline,
        [&] { return pool_->Ask<Response>(method, request, deadline); },
        [this] { return pool_->Strangers(); });
  }

 private:
  SessionWire(std::unique_ptr<Client::ConnectionPool> pool,
              const RetryPolicy& retries)
      : pool_(std::move(pool)), retries_(retries) {}

  const std::unique_ptr<Client::ConnectionPool> pool_;
  const RetryPolicy retries_;
  // 0: not known yet.
  std::atomic<int64_t> max_message_bytes_{0};
};

}  // namespace convgrad

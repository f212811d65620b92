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

// Returns the path of a method of ConvGradSessions.
std::string SessionMethod(absl::string_view name);

// Thread-safe. A returned function is valid while this object and the arguments
// exist.
class SessionWire {
 public:
  // Errors: kInvalidArgument naming an option.
  static absl::StatusOr<std::unique_ptr<SessionWire>> Make(
      ClientOptions options);

  const RetryPolicy& retries() const { return retries_; }

  // Returns a function that sends `request` to `method` in a given context.
  ChangeSender::Send Sender(const std::string& method,
                            const grpc::ByteBuffer& request,
                            absl::Time deadline);
  ChangeSender::Send Sender(const OperationCall& call,
                            const grpc::ByteBuffer& request);
  // Returns a function that sends many messages and receives one. `begin` makes
  // the messages of one attempt.
  ChangeSender::Send Streamer(
      const std::string& method, absl::Time deadline,
      const std::function<Client::Connection::Messages()>& begin);
  // Returns a function that sends one message and passes the received ones to
  // `frames`; its reply is empty.
  ChangeSender::Send Streamer(const std::string& method, absl::Time deadline,
                              const grpc::ByteBuffer& request,
                              FetchedFrames* frames);

  // Returns a change to `method` with a copy of the messages: one, or those of
  // a stream.
  OwnedChange Own(const std::string& method,
                  const Client::Connection::Messages& messages);
  OwnedChange Own(const std::string& method, const grpc::ByteBuffer& message);

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
  absl::Status Call(const std::string& method,
                    const google::protobuf::Message& request,
                    google::protobuf::Message* response, absl::Time deadline);

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

// The connection of a session, and how its calls go over it. Internal to the
// client.
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

inline constexpr char kSessionService[] = "/convgrad.v1.ConvGradSessions/";

// Parses a reply and returns its payloads. Errors: kInternal.
absl::StatusOr<std::vector<PayloadView>> SplitReply(
    grpc::ByteBuffer* message, google::protobuf::Message* response);

// Thread-safe. What it returns is to be used while it and the arguments live.
class SessionWire {
 public:
  // Errors: kInvalidArgument naming an option.
  static absl::StatusOr<std::unique_ptr<SessionWire>> Make(
      ClientOptions options);

  const RetryPolicy& retries() const { return retries_; }

  // Returns what sends `request` to `method`, in any context.
  ChangeSender::Send Sender(const std::string& method,
                            const grpc::ByteBuffer& request,
                            absl::Time deadline);
  ChangeSender::Send Sender(const OperationCall& call,
                            const grpc::ByteBuffer& request);
  // Returns what sends many messages and gets one; `begin` makes those of one
  // attempt.
  ChangeSender::Send Streamer(
      const std::string& method, absl::Time deadline,
      const std::function<Client::Connection::Messages()>& begin);
  // Returns what sends one message and has `frames` take what comes; its reply
  // is empty.
  ChangeSender::Send Streamer(const std::string& method, absl::Time deadline,
                              const grpc::ByteBuffer& request,
                              FetchedFrames* frames);

  // Returns what sends a change that fails whatever the session has.
  ChangeSender::Send VoidSender();

  // Returns how many payload bytes a message may have, if one of `bytes` is to
  // be sent; asks the server, once, where that matters. Errors: the server's.
  absl::StatusOr<int64_t> MessageLimit(int64_t bytes, absl::Time deadline);

  // Makes a call that may be repeated.
  absl::Status Call(const std::string& method,
                    const google::protobuf::Message& request,
                    google::protobuf::Message* response,
                    absl::Time deadline = absl::InfiniteFuture());

 private:
  SessionWire(std::unique_ptr<Client::ConnectionPool> pool,
              const RetryPolicy& retries)
      : pool_(std::move(pool)), retries_(retries) {}

  const std::unique_ptr<Client::ConnectionPool> pool_;
  const RetryPolicy retries_;
  // 0: not known so far.
  std::atomic<int64_t> max_message_bytes_{0};
};

}  // namespace convgrad

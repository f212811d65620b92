// `RpcCall` makes one unary call of bytes. gRPC reads the request from the
// caller's memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/core/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/message_parts.h"

namespace convgrad {

using BytesStub =
    grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;
using Metadata = std::vector<std::pair<std::string, std::string>>;

struct CallRequest {
  std::string method;
  // The message's bytes in consecutive parts. The memory must stay valid while
  // it is lent (RpcCall::IsLent), and its contents unchanged until the call is
  // over.
  std::vector<std::string_view> parts;
  // Keys and values must be valid in HTTP/2.
  Metadata metadata;
  std::optional<std::chrono::duration<double>> timeout;
  // Called once, at the end of the call, on one of gRPC's threads. May be null.
  std::function<void()> on_over;
};

// Thread-safe unless a function says otherwise. A call is over when its status
// has arrived.
class RpcCall {
 public:
  // Starts a call. Release the last reference after the call is over and not on
  // one of gRPC's threads: it may also be the channel's last, whose destruction
  // waits for those threads.
  static std::shared_ptr<RpcCall> Start(BytesStub* stub, CallRequest request);

  // Waits until the call is over, at most `at_most`. Returns whether it is
  // over.
  bool Wait(absl::Duration at_most) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsOver() { return Wait(absl::ZeroDuration()); }
  void Cancel() ABSL_LOCKS_EXCLUDED(context_mutex_);

  // The functions below require IsOver().

  // Destroys gRPC's call, which may hold the request until then.
  void Finish() ABSL_LOCKS_EXCLUDED(context_mutex_);
  // Returns whether gRPC still holds the request's memory. After an error it
  // may hold it as long as a connection stalls, but doesn't use the contents.
  bool IsLent() const { return !loan_.expired(); }
  const grpc::Status& status() const { return status_; }
  // Requires: Finish() was called.
  const Metadata& trailing_metadata() const { return trailing_metadata_; }
  // Returns the response's protobuf head and its payloads, once. If the
  // response isn't a protobuf message, the head has all its bytes, and parsing
  // it fails.
  MessageParts TakeReply();

 private:
  explicit RpcCall(std::function<void()> on_over)
      : on_over_(std::move(on_over)) {}

  grpc::ByteBuffer Lend(const std::vector<std::string_view>& parts);
  // Called on gRPC's thread, which doesn't touch the call afterwards.
  void End(grpc::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::function<void()> on_over_;
  std::weak_ptr<const void> loan_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  Metadata trailing_metadata_;
  Mutex context_mutex_;  // before mutex_
  // Null after Finish().
  std::unique_ptr<grpc::ClientContext> context_
      ABSL_GUARDED_BY(context_mutex_) = std::make_unique<grpc::ClientContext>();
  Mutex mutex_;
  CondVar ended_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad

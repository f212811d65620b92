// One unary call of bytes. gRPC reads the request from the caller's memory.
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

namespace convgrad {

using BytesStub =
    grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;
using Metadata = std::vector<std::pair<std::string, std::string>>;

struct CallRequest {
  std::string method;
  // The message's bytes, one part after the other. The memory has to stay as
  // long as it is lent (RpcCall::IsLent), and its contents until the call is
  // over.
  std::vector<std::string_view> parts;
  // Keys and values that HTTP/2 allows.
  Metadata metadata;
  std::optional<std::chrono::duration<double>> timeout;
  // Is called once when the call is over, on a thread of gRPC's. May be null.
  std::function<void()> on_over;
};

// Thread-safe, unless it says otherwise. A call is over when its status has
// come.
class RpcCall {
 public:
  // The last reference has to go when the call is over, and on no thread of
  // gRPC's: it may be the channel's, too, whose end waits for those threads.
  static std::shared_ptr<RpcCall> Start(BytesStub* stub, CallRequest request);

  // Waits until the call is over or the time has passed, and returns whether it
  // is over.
  bool Wait(absl::Duration at_most) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsOver() { return Wait(absl::ZeroDuration()); }
  void Cancel() ABSL_LOCKS_EXCLUDED(context_mutex_);

  // What follows requires IsOver().

  // Lets go of gRPC's call, which may hold the request until then.
  void Finish() ABSL_LOCKS_EXCLUDED(context_mutex_);
  // Whether gRPC still holds the request's memory. After an error it may for as
  // long as a connection stands still, and doesn't care what is in it.
  bool IsLent() const { return !loan_.expired(); }
  const grpc::Status& status() const { return status_; }
  // Requires: Finish() was called.
  const Metadata& trailing_metadata() const { return trailing_metadata_; }
  grpc::ByteBuffer* reply() { return &reply_; }

 private:
  explicit RpcCall(std::function<void()> on_over)
      : on_over_(std::move(on_over)) {}

  grpc::ByteBuffer Lend(const std::vector<std::string_view>& parts);
  // Nothing touches the call on gRPC's thread after it.
  void End(grpc::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::function<void()> on_over_;
  std::weak_ptr<const void> loan_;
  grpc::ByteBuffer reply_;
  grpc::Status status_;
  Metadata trailing_metadata_;
  Mutex context_mutex_;  // before mutex_
  // Null once it is finished.
  std::unique_ptr<grpc::ClientContext> context_
      ABSL_GUARDED_BY(context_mutex_) = std::make_unique<grpc::ClientContext>();
  Mutex mutex_;
  CondVar ended_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad

// Sends the changes of a session, each of which takes effect once whatever
// becomes of connections and replies. Knows nothing of what a change is.
// Internal to the client.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "client/cpp/retries.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"

namespace convgrad {

// Thread-safe: changes go one after the other, reads beside them.
class ChangeSender {
 public:
  // Sends a call in a context that has its session's metadata, and returns the
  // reply's message.
  using Send =
      std::function<absl::StatusOr<grpc::ByteBuffer>(grpc::ClientContext*)>;

  // `id`, `epoch` and `number` are as the server gave them.
  ChangeSender(std::string id, int64_t epoch, int64_t number,
               const RetryPolicy& retries)
      : id_(std::move(id)), retries_(retries), number_(number), epoch_(epoch) {}

  // Has `send` send the next change until the server has said what became of
  // it. Errors: the server's; the last attempt's, if that is unknown: number()
  // tells it after the next change.
  absl::StatusOr<grpc::ByteBuffer> Change(absl::Time deadline,
                                          const Send& send);
  // The same of a read, which sees all changes of this client before.
  absl::StatusOr<grpc::ByteBuffer> Read(absl::Time deadline, const Send& send);

  const std::string& id() const { return id_; }
  // Of the last change that is known to be committed.
  int64_t number() const { return number_; }

 private:
  struct Answer {
    absl::StatusOr<grpc::ByteBuffer> message;
    // The session's last committed change; -1 if the server didn't say.
    int64_t number = -1;
  };

  Answer SendOnce(const Send& send, grpc::ClientContext* context) const;
  // Learns from the answer of the change that was sent. Returns an error that a
  // RetryPolicy takes for passing if it is to be sent again, and else what the
  // caller gets.
  absl::Status Learn(const Answer& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string id_;
  const RetryPolicy retries_;
  std::atomic<int64_t> number_;
  Mutex mutex_;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_);
  // What the server says to every call since another client has resumed.
  absl::Status taken_over_ ABSL_GUARDED_BY(mutex_);
  // Whether the change before may still run, or may have been committed.
  bool is_unsettled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace convgrad

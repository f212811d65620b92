// `Connection` makes calls over a channel; `ConnectionPool` spreads a
// client's calls over its connections. Internal to the client.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "backends/core/status.h"
#include "client/cpp/client.h"
#include "google/protobuf/message.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"

namespace convgrad {

// Thread-safe.
struct Client::Connection {
  Connection(const std::shared_ptr<grpc::Channel>& server, std::string bearer)
      : channel(server), raw_stub(channel), token(std::move(bearer)) {}

  // If the last attempt to connect failed, waits up to 50 ms for the next one,
  // but not beyond `deadline`. Calls on a failed channel end at once, and gRPC
  // goes on connecting only while a thread waits for the channel, or every 5 s.
  void AwaitReconnect(absl::Time deadline) const;

  // Sets deadline and authorization in `*context`. Every call needs them.
  void FillContext(absl::Time deadline, grpc::ClientContext* context) const;
  // Sets the same for `call`, and its trace context and priority.
  void FillContext(const OperationCall& call,
                   grpc::ClientContext* context) const;

  // Sends `request` in `*context`. Blocks for the reply and returns its
  // message. Requires: FillContext was called for `context`.
  absl::StatusOr<grpc::ByteBuffer> Send(const std::string& method,
                                        const grpc::ByteBuffer& request,
                                        grpc::ClientContext* context);

  // Makes a call without payloads, once. Errors: the server's; kInternal.
  absl::Status Call(const std::string& method,
                    const google::protobuf::Message& request,
                    google::protobuf::Message* response, absl::Time deadline);

  // Makes a streaming call. Sends the messages that `messages` returns until it
  // returns none, half-closes, and passes each received message to `take`
  // meanwhile. Ends the call with the first error of `take`. gRPC's threads
  // call both functions, each of them one call at a time.
  using Messages = std::function<std::optional<grpc::ByteBuffer>()>;
  using Take = std::function<absl::Status(grpc::ByteBuffer*)>;
  absl::Status Exchange(const std::string& method, const Messages& messages,
                        const Take& take, grpc::ClientContext* context);

  const std::shared_ptr<grpc::Channel> channel;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> raw_stub;
  const std::string token;
};

// Thread-safe.
class Client::ConnectionPool {
 public:
  // Policy for a name with several addresses: kAll takes them in turn, kOne
  // stays with one as long as it is available.
  enum class Addresses { kAll, kOne };

  // Errors: kInvalidArgument naming an option.
  static absl::StatusOr<std::unique_ptr<ConnectionPool>> Make(
      const ClientOptions& options, Addresses addresses = Addresses::kAll);

  // Runs `call(Connection&)`, which returns a StatusOr and has this
  // deadline, on the next connection in turn. Uses a server that was just
  // unavailable only if all were.
  template <typename Call>
  auto Run(absl::Time deadline, const Call& call) {
    const size_t slot = Pick();
    slots_[slot].connection->AwaitReconnect(deadline);
    auto result = call(*slots_[slot].connection);
    const absl::Status& status = result.status();
    if (status.ok() || DetailOf(status)) has_answered_ = true;
    if (absl::IsUnavailable(status) || absl::IsCancelled(status)) {
      LeaveOut(slot);
    }
    return result;
  }

  // Makes a call without payloads on the next connection in turn, once.
  // Errors: as Connection::Call.
  template <typename Response>
  absl::StatusOr<Response> Ask(const std::string& method,
                               const google::protobuf::Message& request,
                               absl::Time deadline) {
    return Run(deadline,
               [&](Connection& connection) -> absl::StatusOr<Response> {
                 Response response;
                 RETURN_IF_ERROR(
                     connection.Call(method, request, &response, deadline));
                 return response;
               });
  }

  // Returns the number of servers, or 0 if one of them has answered.
  int Strangers() const { return has_answered_ ? 0 : servers_; }

 private:
  struct Slot {
    std::unique_ptr<Connection> connection;
    absl::Time down_until = absl::InfinitePast();
  };

  ConnectionPool(std::vector<Slot> slots, int servers)
      : servers_(servers), slots_(std::move(slots)) {}
  size_t Pick() ABSL_LOCKS_EXCLUDED(mutex_);
  void LeaveOut(size_t slot) ABSL_LOCKS_EXCLUDED(mutex_);

  const int servers_;
  std::atomic<bool> has_answered_ = false;
  // The connections are thread-safe; `mutex_` guards the rest.
  std::vector<Slot> slots_;
  Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace convgrad

// `Client` has a server run operations on the caller's tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client_options.h"
#include "client/cpp/operation_call.h"
#include "convgrad/v1/service.pb.h"
#include "convgrad/v1/session.pb.h"
#include "proto/region_places.h"

namespace convgrad {

class CallThreads;

// Thread-safe.
class Client {
 public:
  // Returns a client, which connects on its first call.
  // Errors: kInvalidArgument naming an option.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const ClientOptions& options);
  // Ends the calls of RunAsync and Submit: queued calls fail with kCancelled;
  // the destructor blocks until running calls have ended.
  ~Client();

  // Sends the operation and blocks until its results arrive. Uses one message
  // in each direction. Uses a stream (RunStreamed) instead if the payload
  // exceeds 2 GiB - 2 MiB, or if the server answers that its messages are
  // smaller (--max_message_bytes).
  // If a call fails early, gRPC may still be sending. Run returns only after
  // gRPC has released the operands' memory, which can be some time after the
  // deadline.
  // Errors: kInvalidArgument before anything is sent; the server's, with its
  // detail (DetailOf in backends/core/status.h); kUnavailable if there is no
  // server; kInternal for a reply that doesn't fit the operation.
  absl::StatusOr<OperationReply> Run(const OperationCall& call);

  // Does the same as Run over a stream, in slices of `slice_items` items of the
  // batch. 0 selects the number that the contract defines (StreamHeader in
  // service.proto). The server's memory use doesn't grow with the batch. The
  // server refuses `self_check` in streams. Tensors in a region are sent like
  // all others.
  absl::StatusOr<OperationReply> RunStreamed(const OperationCall& call,
                                             int64_t slice_items);

  // Does the same as Run on one of the client's threads and returns at once.
  // The client calls `done` once, on that thread. `done` may make other calls
  // but must neither throw nor destroy the client. The caller must keep the
  // memory that the call names valid until then.
  using Done = std::function<void(absl::StatusOr<OperationReply>)>;
  void RunAsync(OperationCall call, Done done);

  // Does the same as RunAsync and returns a future.
  std::future<absl::StatusOr<OperationReply>> Submit(OperationCall call);

  // Returns what the server can compute and its limits.
  // Errors: the server's; kUnavailable if there is no server.
  absl::StatusOr<v1::GetCapabilitiesResponse> Capabilities(absl::Time deadline);

  // Returns the caller's open sessions on all servers or, if `everybody` is
  // set, all sessions, which requires the role admin.
  // Errors: as Capabilities, for any of the servers; kPermissionDenied.
  absl::StatusOr<v1::ListSessionsResponse> Sessions(bool everybody,
                                                    absl::Time deadline);

  // Closes the session with this handle (SessionInfo.handle in a list), on
  // whichever server it is.
  // Requires a client identity or the role admin.
  // Errors: as Sessions; kNotFound.
  absl::Status CloseSession(const std::string& handle, absl::Time deadline);

  struct Connection;     // internal
  class ConnectionPool;  // internal

 private:
  Client(std::unique_ptr<ConnectionPool> pool, const ClientOptions& options);
  // Calls `attempt` until the reply is final under the retry policy.
  absl::StatusOr<OperationReply> Persist(
      const OperationCall& call,
      absl::FunctionRef<absl::StatusOr<OperationReply>(const OperationCall&)>
          attempt);
  absl::StatusOr<OperationReply> RunOnce(const OperationCall& call);
  absl::StatusOr<OperationReply> StreamOnce(const OperationCall& call,
                                            int64_t slice_items);
  // Requires: a valid operation and the result of PlacesOf for it.
  absl::StatusOr<OperationReply> RunUnary(const OperationCall& call,
                                          const RegionPlaces& places);

  const std::unique_ptr<ConnectionPool> pool_;
  const ClientOptions options_;
  // The last member, because its calls use the others.
  const std::unique_ptr<CallThreads> threads_;
};

}  // namespace convgrad

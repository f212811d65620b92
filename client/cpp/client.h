// The typed client: operations on the caller's tensors, run by a server.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>

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
  // Connects when first used.
  // Errors: kInvalidArgument naming an option.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const ClientOptions& options);
  // Ends RunAsync's and Submit's calls: those that wait for their turn are
  // kCancelled, those under way are waited for.
  ~Client();

  // Sends the operation and waits for its results: in one message each way, or
  // by RunStreamed where no message can hold them (2 GiB - 2 MiB) or the server
  // answers that its own can't (--max_message_bytes). gRPC may still be sending
  // when a call fails early; Run returns only when it has let go of the
  // operands' memory, which can be some time after the deadline.
  // Errors: kInvalidArgument before anything is sent; the server's, with its
  // detail (DetailOf); kUnavailable if there is no server; kInternal for a
  // reply that doesn't fit the operation.
  absl::StatusOr<OperationReply> Run(const OperationCall& call);

  // As Run, over a stream: in slices of `slice_items` items of the batch, 0 for
  // what the contract works out (StreamHeader in service.proto). Memory at the
  // server doesn't grow with the batch; a self-check is refused there. What is
  // in a region is sent like the rest.
  absl::StatusOr<OperationReply> RunStreamed(const OperationCall& call,
                                             int64_t slice_items);

  // As Run, on a thread of the client's; returns at once. `done` is called
  // there once; it may make other calls, but not destroy the client. The memory
  // that the call names is lent until then.
  using Done = std::function<void(absl::StatusOr<OperationReply>)>;
  void RunAsync(OperationCall call, Done done);

  // As RunAsync, for who waits later.
  std::future<absl::StatusOr<OperationReply>> Submit(OperationCall call);

  // Errors: the server's; kUnavailable if there is no server.
  absl::StatusOr<v1::GetCapabilitiesResponse> Capabilities(absl::Time deadline);

  // Returns the caller's open sessions, or, an admin's right, everybody's.
  // Errors: as Capabilities; kPermissionDenied.
  absl::StatusOr<v1::ListSessionsResponse> Sessions(bool everybody,
                                                    absl::Time deadline);

  // Ends the session that a list names by this handle (SessionInfo.handle).
  // Takes an identity or the role admin. Errors: as Sessions; kNotFound.
  absl::Status CloseSession(const std::string& handle, absl::Time deadline);

  struct Connection;     // internal
  class ConnectionPool;  // internal

 private:
  Client(std::unique_ptr<ConnectionPool> pool, const ClientOptions& options);
  // Has `attempt` run the call until its answer is final.
  absl::StatusOr<OperationReply> Persist(
      const OperationCall& call,
      absl::FunctionRef<absl::StatusOr<OperationReply>(const OperationCall&)>
          attempt);
  absl::StatusOr<OperationReply> RunOnce(const OperationCall& call);
  absl::StatusOr<OperationReply> StreamOnce(const OperationCall& call,
                                            int64_t slice_items);
  // Requires: a valid operation, and its PlacesOf.
  absl::StatusOr<OperationReply> RunUnary(const OperationCall& call,
                                          const RegionPlaces& places);

  const std::unique_ptr<ConnectionPool> pool_;
  const std::optional<RetryPolicy> retries_;
  // Last: its calls use the others.
  const std::unique_ptr<CallThreads> threads_;
};

}  // namespace convgrad

// The typed client: operations on the caller's tensors, run by a server.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/core/conv_operation.h"
#include "client/cpp/aligned_buffer.h"
#include "client/cpp/retries.h"
#include "client/cpp/shared_region.h"
#include "convgrad/v1/service.pb.h"
#include "proto/region_places.h"

namespace convgrad {

struct ClientOptions {
  // "HOST:PORT", "unix:PATH" or another of gRPC's names, e.g. "dns:///NAME:PORT".
  // Several addresses behind one are used in turn.
  std::string server;
  // Paths of PEM files: authorities that the server's certificate must come
  // from (empty: plaintext), and the client's own certificate (empty: none).
  std::string ca = {};
  std::string cert = {};
  std::string key = {};
  std::string token = {};  // as the server's --token_file has it; empty: none
  // Whether and how calls that failed for the moment are sent again, within
  // their deadline. Empty: they aren't.
  std::optional<RetryPolicy> retries = std::nullopt;
};

// One operation and the bytes it reads.
struct OperationCall {
  ConvOperation operation;
  // Indexed by Operand: exactly ByteSize(descriptor) bytes where the operation
  // has that operand. Sent from where they lie, without a copy; those in
  // `region` aren't sent at all.
  std::array<absl::Span<const std::byte>, kOperandCount> operands = {};
  // Where results go, in the order of operation.results: exactly
  // ByteSize(descriptor) bytes, overlapping no operand and no other result;
  // undefined if the call fails. What lies in `region` is written there by the
  // server. None (missing, or a null span) for a buffer of the reply.
  std::vector<absl::Span<std::byte>> destinations;
  // Of the server that is called; outlives the call. Its tensors mustn't be
  // touched during the call, nor, where that failed, before its time is up: the
  // server may still be at work on them. Null: no shared memory.
  const SharedRegion* region = nullptr;
  // "" is auto, otherwise "onednn", "cuda" or "reference".
  std::string backend;
  // Some 16 bytes by which repeats are told; made if empty.
  std::string request_id;
  bool deterministic = true;
  // Ask the server to check the gradients, and to count Inf and NaN; both come
  // with the report.
  bool self_check = false;
  bool count_nonfinite = false;
  // W3C's trace context of the span that the call belongs to; empty: none.
  std::string traceparent;
  // Without one the server's default holds.
  absl::Time deadline = absl::InfiniteFuture();
};

struct OperationResult {
  Result which;
  TensorDescriptor descriptor;  // as asked for
  AlignedBuffer data;           // empty if the call named a destination
  // The result, in `data` or in the call's destination.
  absl::Span<const std::byte> bytes;
};

struct OperationReply {
  std::vector<OperationResult> results;  // in the order asked for
  v1::Report report;
  absl::Duration elapsed;  // of the whole call, as the caller saw it
  int64_t sent_bytes = 0;  // messages, without gRPC's framing
  int64_t received_bytes = 0;
  int64_t region_bytes = 0;  // of tensors in the call's region
};

// Thread-safe.
class Client {
 public:
  // Connects when first used.
  // Errors: kInvalidArgument naming an option.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const ClientOptions& options);
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

  // Errors: the server's; kUnavailable if there is no server.
  absl::StatusOr<v1::GetCapabilitiesResponse> Capabilities(absl::Time deadline);

  struct Connection;  // internal

 private:
  Client(std::unique_ptr<Connection> connection,
         std::optional<RetryPolicy> retries);
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

  const std::unique_ptr<Connection> connection_;
  const std::optional<RetryPolicy> retries_;
};

}  // namespace convgrad

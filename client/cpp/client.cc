#include "client/cpp/client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "client/cpp/borrowed_slices.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/calls/call_threads.h"
#include "client/cpp/connection.h"
#include "client/cpp/operation_message.h"
#include "client/cpp/replicas.h"
#include "client/cpp/streamed_run.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

// Errors: kInvalidArgument for a call that only a session can make.
absl::Status CheckNothingKept(const OperationCall& call) {
  const bool has_operand =
      std::any_of(call.kept_operands.begin(), call.kept_operands.end(),
                  [](const std::string& name) { return !name.empty(); });
  if (!has_operand && call.kept_results.empty()) return absl::OkStatus();
  return OutOfRange(has_operand ? "kept_operands" : "kept_results", "some",
                    "none, except in Session::Run");
}

// Returns whether the operands or the results outside regions are too large for
// a message.
bool NeedsStream(const ConvOperation& operation, const RegionPlaces& places) {
  int64_t request_bytes = 0;
  int64_t response_bytes = 0;
  const auto add = [](int64_t* sum, const TensorDescriptor& tensor) {
    *sum = SaturatingAdd(*sum, ByteSize(tensor).value_or(0));
  };
  for (size_t i = 0; i < operation.operands.size(); ++i) {
    if (!operation.operands[i] || places.operands[i]) continue;
    add(&request_bytes, *operation.operands[i]);
  }
  for (size_t i = 0; i < operation.results.size(); ++i) {
    if (places.results[i]) continue;
    add(&response_bytes, operation.results[i].descriptor);
  }
  return std::max(request_bytes, response_bytes) > kMaxPayloadBytes;
}

// Returns whether a call has ended while its server may still write results to
// the call's region: it said nothing.
bool MayStillBeWritten(const OperationCall& call, const absl::Status& status) {
  if (call.region == nullptr || DetailOf(status) ||
      !(absl::IsUnavailable(status) || absl::IsCancelled(status))) {
    return false;
  }
  return std::any_of(call.destinations.begin(), call.destinations.end(),
                     [&](absl::Span<const std::byte> destination) {
                       return call.region->RangeOf(destination).has_value();
                     });
}

// Checks a call and returns which of its tensors lie in its region.
// Errors: kInvalidArgument.
absl::StatusOr<RegionPlaces> Check(const OperationCall& call) {
  RETURN_IF_ERROR(Validate(call.operation));
  RETURN_IF_ERROR(CheckNothingKept(call));
  RETURN_IF_ERROR(CheckOptions(call));
  return PlacesOf(call);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(
    const ClientOptions& options) {
  if (options.async_calls < 1) {
    return OutOfRange("async_calls", options.async_calls, "at least 1");
  }
  ASSIGN_OR_RETURN(auto pool, ConnectionPool::Make(options));
  return std::unique_ptr<Client>(new Client(std::move(pool), options));
}

Client::Client(std::unique_ptr<ConnectionPool> pool,
               const ClientOptions& options)
    : pool_(std::move(pool)),
      options_(options),
      threads_(std::make_unique<CallThreads>(options.async_calls)) {}

Client::~Client() = default;

absl::StatusOr<OperationReply> Client::Persist(
    const OperationCall& call,
    absl::FunctionRef<absl::StatusOr<OperationReply>(const OperationCall&)>
        attempt) {
  if (!options_.retries) return attempt(call);
  OperationCall repeated = call;
  if (repeated.request_id.empty()) repeated.request_id = RandomRequestId();
  RetryPolicy policy = *options_.retries;
  return policy.Persist(
      call.deadline,
      [&] {
        auto reply = attempt(repeated);
        // A repeat might end before the lost attempt writes.
        if (MayStillBeWritten(call, reply.status())) policy.max_attempts = 1;
        return reply;
      },
      [this] { return pool_->Strangers(); });
}

absl::StatusOr<OperationReply> Client::Run(const OperationCall& call) {
  return Persist(call, [this](const OperationCall& repeated) {
    return RunOnce(repeated);
  });
}

absl::StatusOr<OperationReply> Client::RunStreamed(const OperationCall& call,
                                                   int64_t slice_items) {
  // The server doesn't write a stream's results to a region.
  OperationCall sent = call;
  sent.region = nullptr;
  return Persist(sent, [this, slice_items](const OperationCall& repeated) {
    return StreamOnce(repeated, slice_items);
  });
}

void Client::RunAsync(OperationCall call, Done done) {
  threads_->Post(
      [this, call = std::move(call), done = std::move(done)](bool cancelled) {
        if (cancelled) return done(absl::CancelledError("the client has gone"));
        done(Run(call));
      });
}

std::future<absl::StatusOr<OperationReply>> Client::Submit(OperationCall call) {
  auto promise =
      std::make_shared<std::promise<absl::StatusOr<OperationReply>>>();
  RunAsync(std::move(call), [promise](absl::StatusOr<OperationReply> reply) {
    promise->set_value(std::move(reply));
  });
  return promise->get_future();
}

absl::StatusOr<OperationReply> Client::RunOnce(const OperationCall& call) {
  ASSIGN_OR_RETURN(const RegionPlaces places, Check(call));
  if (NeedsStream(call.operation, places)) return StreamOnce(call, 0);
  absl::StatusOr<OperationReply> reply = RunUnary(call, places);
  // The server can't check the results of a stream.
  if (call.self_check || !IsTooLarge(reply.status())) return reply;
  return StreamOnce(call, 0);
}

absl::StatusOr<OperationReply> Client::StreamOnce(const OperationCall& call,
                                                  int64_t slice_items) {
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(Check(call).status());
  if (slice_items < 0) {
    return OutOfRange("slice_items", slice_items, "at least 0");
  }
  BorrowedSlices borrowed;
  auto run = [&](Connection& connection) -> absl::StatusOr<OperationReply> {
    grpc::ClientContext context;
    connection.FillContext(call, &context);
    StreamedRun stream(call, slice_items, borrowed);
    RETURN_IF_ERROR(stream.Allocate());
    RETURN_IF_ERROR(connection.Exchange(
        absl::StrCat(MethodOf(call.operation), "Stream"),
        [&] { return stream.NextMessage(); },
        [&](grpc::ByteBuffer* message) { return stream.Take(message); },
        &context));
    return stream.Finish();
  };
  absl::StatusOr<OperationReply> reply = pool_->Run(call.deadline, run);
  borrowed.AwaitRelease();
  if (reply.ok()) reply->elapsed = absl::Now() - start;
  return reply;
}

absl::StatusOr<OperationReply> Client::RunUnary(const OperationCall& call,
                                                const RegionPlaces& places) {
  const absl::Time start = absl::Now();
  BorrowedSlices borrowed;
  int64_t sent_bytes = 0;
  // A separate function, so that all references to the operands' memory are
  // released before the wait.
  auto send = [&]() -> absl::StatusOr<grpc::ByteBuffer> {
    ASSIGN_OR_RETURN(
        const grpc::ByteBuffer request,
        EncodeRequest(call, places, PayloadsOf(call, places, borrowed)));
    sent_bytes = static_cast<int64_t>(request.Length());
    return pool_->Run(call.deadline, [&](Connection& connection) {
      grpc::ClientContext context;
      connection.FillContext(call, &context);
      return connection.Send(MethodOf(call.operation), request, &context);
    });
  };
  absl::StatusOr<grpc::ByteBuffer> message = send();
  borrowed.AwaitRelease();
  RETURN_IF_ERROR(message.status());
  ASSIGN_OR_RETURN(OperationReply reply, DecodeReply(call, places, &*message));
  reply.sent_bytes = sent_bytes;
  reply.elapsed = absl::Now() - start;
  return reply;
}

absl::StatusOr<v1::ListSessionsResponse> Client::Sessions(bool everybody,
                                                          absl::Time deadline) {
  v1::ListSessionsRequest request;
  request.set_everybody(everybody);
  v1::ListSessionsResponse all;
  for (const ClientOptions& replica : ReplicasOf(options_)) {
    ASSIGN_OR_RETURN(const auto pool, ConnectionPool::Make(replica));
    ASSIGN_OR_RETURN(const auto listed,
                     pool->Ask<v1::ListSessionsResponse>(
                         SessionMethod("ListSessions"), request, deadline));
    all.MergeFrom(listed);
  }
  return all;
}

absl::Status Client::CloseSession(const std::string& handle,
                                  absl::Time deadline) {
  v1::CloseSessionRequest request;
  request.set_handle(handle);
  return AskForSession(
      ReplicasOf(options_), deadline,
      [&](const ClientOptions& replica, absl::Time until) -> absl::Status {
        ASSIGN_OR_RETURN(const auto pool, ConnectionPool::Make(replica));
        return pool
            ->Ask<v1::CloseSessionResponse>(SessionMethod("CloseSession"),
                                            request, until)
            .status();
      });
}

absl::StatusOr<v1::GetCapabilitiesResponse> Client::Capabilities(
    absl::Time deadline) {
  return pool_->Ask<v1::GetCapabilitiesResponse>(
      kCapabilitiesMethod, v1::GetCapabilitiesRequest(), deadline);
}

}  // namespace convgrad

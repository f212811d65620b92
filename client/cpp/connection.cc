#include "client/cpp/connection.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/field_errors.h"
#include "backends/core/steady_now.h"
#include "backends/core/thread_order.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/calls/rpc_status.h"
#include "client/cpp/credentials.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/client_callback.h"
#include "proto/call_metadata.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

// Time for which calls avoid a server that was unavailable, if there are
// others.
constexpr absl::Duration kDownTime = absl::Seconds(1);
// Timeout of a connection until the server's first bytes. With gRPC's 20 s, a
// client would learn only after 40 s that a server, which retries give about 30
// s, doesn't answer.
constexpr absl::Duration kConnectTime = absl::Seconds(30);
constexpr absl::Duration kReconnectTime = absl::Milliseconds(50);
constexpr absl::Duration kLeastKeepalive = absl::Seconds(1);
// A server answers pings on a thread that doesn't compute, so 20 s suffice.
constexpr absl::Duration kMostPingTime = absl::Seconds(20);

// Time from a failed write of a stream to its status, which gRPC knows already.
constexpr absl::Duration kStatusTime = absl::Seconds(1);

// Returns gRPC's unit for times; anything longer than an hour is an hour.
int Milliseconds(absl::Duration duration) {
  return static_cast<int>(
      absl::ToInt64Milliseconds(std::min(duration, absl::Hours(1))));
}

// Returns the deadline for gRPC, which takes a time before 1970 for no
// deadline.
std::chrono::system_clock::time_point ForGrpc(absl::Time deadline) {
  return absl::ToChronoTime(std::max(deadline, absl::UnixEpoch()));
}

grpc::ChannelArguments ArgumentsOf(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // An http_proxy in the environment would also apply to servers on loopback.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Gives each channel its own connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Retries decide when to try again; gRPC's own backoff would grow to 2
  // minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Milliseconds(kConnectTime));
  // With gRPC's default of 30 s, clients of a rolling restart would keep
  // addresses without a server.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   Milliseconds(std::min(options.keepalive, kMostPingTime)));
  // A call that waits longer than two pings take sends no data meanwhile.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  if (!options.server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.server_name);
  }
  return arguments;
}

// Makes one streaming call. gRPC calls OnWriteDone and OnReadDone on its own
// threads, at most one of each at a time, and OnDone after the last. Each
// member belongs to either the writer or the reader and needs no lock.
class ByteStream final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // The arguments must outlive the call.
  ByteStream(const Client::Connection::Messages& messages,
             const Client::Connection::Take& take, grpc::ClientContext* context)
      : messages_(messages), take_(take), context_(context) {}

  absl::Status Run() {
    Write();
    HandedOver(&incoming_);
    StartRead(&incoming_);
    StartCall();
    const bool is_stuck = AwaitStatus();
    if (is_stuck) context_->TryCancel();
    MutexLock lock(&mutex_);
    while (!status_) changed_.Wait(&mutex_);
    HandedOver(&outgoing_);
    HandedOver(&incoming_);
    RETURN_IF_ERROR(taken_);
    if (is_stuck && status_->error_code() == grpc::StatusCode::CANCELLED) {
      return absl::UnavailableError("the connection ended as the call began");
    }
    return FromRpc(*status_, *context_);
  }

 private:
  void Write() {
    outgoing_ = messages_();
    HandedOver(&outgoing_);
    outgoing_ ? StartWrite(&*outgoing_) : StartWritesDone();
  }

  // Blocks until the call has ended. Returns true if it won't end: gRPC 1.51
  // repeats a call that begins on a connection as this ends, although a write
  // of it has failed. The repeat lacks messages, and the server waits for them.
  bool AwaitStatus() {
    MutexLock lock(&mutex_);
    while (!status_ && !write_failed_) changed_.Wait(&mutex_);
    const absl::Time limit = SteadyNow() + kStatusTime;
    while (!status_ && SteadyNow() < limit) {
      changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(limit - SteadyNow()));
    }
    return !status_;
  }

  void OnWriteDone(bool ok) override {
    HandedOver(&outgoing_);
    ok ? Write() : OnFailedWrite();
  }

  void OnWritesDoneDone(bool ok) override {
    if (!ok) OnFailedWrite();
  }

  // OnDone receives the status with the reason.
  void OnFailedWrite() {
    MutexLock lock(&mutex_);
    write_failed_ = true;
    changed_.NotifyAll();
  }

  void OnReadDone(bool ok) override {
    HandedOver(&incoming_);
    if (!ok) return;
    taken_ = take_(&incoming_);
    const bool is_good = taken_.ok();
    HandedOver(&incoming_);
    is_good ? StartRead(&incoming_) : context_->TryCancel();
  }

  void OnDone(const grpc::Status& status) override {
    HandedOver(&incoming_);
    MutexLock lock(&mutex_);
    status_ = status;
    changed_.NotifyAll();
  }

  const Client::Connection::Messages& messages_;
  const Client::Connection::Take& take_;
  grpc::ClientContext* const context_;

  std::optional<grpc::ByteBuffer> outgoing_;  // owned by the writer
  grpc::ByteBuffer incoming_;                 // owned by the reader, as is:
  absl::Status taken_;

  Mutex mutex_;
  CondVar changed_;
  bool write_failed_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void Client::Connection::AwaitReconnect(absl::Time deadline) const {
  constexpr auto kFailed = GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (channel->GetState(/*try_to_connect=*/false) != kFailed) return;
  channel->WaitForStateChange(
      kFailed, ForGrpc(std::min(absl::Now() + kReconnectTime, deadline)));
}

void Client::Connection::FillContext(absl::Time deadline,
                                     grpc::ClientContext* context) const {
  if (deadline != absl::InfiniteFuture()) {
    context->set_deadline(ForGrpc(deadline));
  }
  if (!token.empty()) {
    context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
}

void Client::Connection::FillContext(const OperationCall& call,
                                     grpc::ClientContext* context) const {
  FillContext(call.deadline, context);
  if (!call.traceparent.empty()) {
    context->AddMetadata("traceparent", call.traceparent);
  }
  if (!call.priority.empty()) {
    context->AddMetadata(kPriorityKey, call.priority);
  }
}

absl::StatusOr<grpc::ByteBuffer> Client::Connection::Send(
    const std::string& method, const grpc::ByteBuffer& request,
    grpc::ClientContext* context) {
  context->AddMetadata(kRequestBytesKey, std::to_string(request.Length()));
  grpc::CompletionQueue queue;
  auto reader = raw_stub.PrepareUnaryCall(context, method, request, &queue);
  reader->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  reader->Finish(&reply, &status, reader.get());
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  RETURN_IF_ERROR(FromRpc(status, *context));
  return reply;
}

absl::Status Client::Connection::Call(const std::string& method,
                                      const google::protobuf::Message& request,
                                      google::protobuf::Message* response,
                                      absl::Time deadline) {
  grpc::ClientContext context;
  FillContext(deadline, &context);
  ASSIGN_OR_RETURN(const grpc::ByteBuffer message, JoinMessage(request, {}));
  ASSIGN_OR_RETURN(grpc::ByteBuffer reply, Send(method, message, &context));
  // Not by SplitReply, because a list of sessions may be longer than a head.
  grpc::Slice bytes;
  const bool is_whole =
      reply.Length() == 0 || reply.DumpToSingleSlice(&bytes).ok();
  if (is_whole && std::in_range<int>(bytes.size()) &&
      response->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()))) {
    return absl::OkStatus();
  }
  return BadReply("message", "bytes that protobuf can't parse",
                  response->GetDescriptor()->full_name());
}

absl::Status Client::Connection::Exchange(const std::string& method,
                                          const Messages& messages,
                                          const Take& take,
                                          grpc::ClientContext* context) {
  ByteStream stream(messages, take, context);
  raw_stub.PrepareBidiStreamingCall(context, method, {}, &stream);
  return stream.Run();
}

absl::StatusOr<std::unique_ptr<Client::ConnectionPool>>
Client::ConnectionPool::Make(const ClientOptions& options,
                             Addresses addresses) {
  if (options.connections < 1) {
    return OutOfRange("connections", options.connections, "at least 1");
  }
  if (options.keepalive < kLeastKeepalive) {
    return OutOfRange(
        "keepalive", absl::FormatDuration(options.keepalive),
        absl::StrCat("at least ", absl::FormatDuration(kLeastKeepalive)));
  }
  RETURN_IF_ERROR(CheckHeader("token", options.token));
  ASSIGN_OR_RETURN(const auto credentials, MakeCredentials(options));
  grpc::ChannelArguments arguments = ArgumentsOf(options);
  // A name with several addresses stands for replicas.
  arguments.SetLoadBalancingPolicyName(
      addresses == Addresses::kAll ? "round_robin" : "pick_first");
  std::vector<Slot> slots;
  for (int i = 0; i < options.connections; ++i) {
    for (const std::string& server : ServersOf(options)) {
      const auto channel =
          grpc::CreateCustomChannel(server, credentials, arguments);
      slots.push_back({std::make_unique<Connection>(channel, options.token)});
    }
  }
  const int servers = static_cast<int>(slots.size()) / options.connections;
  return std::unique_ptr<ConnectionPool>(
      new ConnectionPool(std::move(slots), servers));
}

size_t Client::ConnectionPool::Pick() {
  MutexLock lock(&mutex_);
  const absl::Time now = SteadyNow();
  size_t picked = next_;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const size_t slot = (next_ + i) % slots_.size();
    if (slots_[slot].down_until > now) continue;
    picked = slot;
    break;
  }
  next_ = (picked + 1) % slots_.size();
  return picked;
}

void Client::ConnectionPool::LeaveOut(size_t slot) {
  MutexLock lock(&mutex_);
  slots_[slot].down_until = SteadyNow() + kDownTime;
}

}  // namespace convgrad

// Fuzzes sequences of calls to a server in this process: sessions are opened,
// used with valid and invalid calls, and closed.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "server/server.h"
#include "tests/fuzz/call_target.h"
#include "tests/fuzz/fitting_payloads.h"
#include "tests/fuzz/inputs.pb.h"
#include "tests/fuzz/message_fuzzer.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/session_caller.h"

namespace convgrad::fuzz {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kMostCalls = 40;
// The time limit of a call that waits for nothing.
constexpr int kPatienceMs = 60'000;
// The time limit of a call that waits for others, which may never come.
constexpr int kWaitMs = 30;

constexpr absl::string_view kWords[] = {"net",
                                        "x",
                                        "y",
                                        "w",
                                        "b",
                                        "t",
                                        "loss",
                                        "tape",
                                        "w#gradient",
                                        "w#momentum_buffer",
                                        "w#step",
                                        "conv",
                                        "linear",
                                        "batch_norm",
                                        "relu",
                                        "max_pool",
                                        "upsample",
                                        "dropout",
                                        "mse",
                                        "cross_entropy",
                                        "kernel_size",
                                        "training",
                                        "scale_factor",
                                        "padding"};

// A server with little memory that exists until the process ends.
struct Subject {
  std::unique_ptr<Server> server;
  std::shared_ptr<grpc::Channel> channel;

  Subject() {
    Config config;
    config.listen = "127.0.0.1:0";
    config.metrics_listen = "";
    config.threads_per_worker = 1;
    config.pin_workers = false;
    config.prove_at_start = false;
    config.memory_budget_bytes = 128 * kMiB;
    config.max_message_bytes = kMiB;
    config.max_kept_bytes = 4 * kMiB;
    config.max_client_kept_bytes = 3 * kMiB;
    config.max_client_sessions = 4;
    config.max_macs = 10'000'000;
    config.max_reference_macs = 1'000'000;
    config.plan_cache_bytes = 4 * kMiB;
    config.log_level = "off";
    auto started = Server::Start(config);
    Require(started.ok(), "the server starts");
    server = *std::move(started);
    channel = grpc::CreateChannel(server->addresses()[0],
                                  grpc::InsecureChannelCredentials());
  }
};

// A client's knowledge of a session.
struct Known {
  std::string id;
  int64_t number = 0;
  int64_t epoch = 1;
  int pending = 0;
  // The last change that ended, if its reply is still kept.
  std::string path;
  std::string request;
  CallMetadata metadata;
  Reply reply;
};

class Sequence {
 public:
  explicit Sequence(Subject* subject) : subject_(*subject) {}

  void Make(const Calls::Call& call);
  // Waits for the waiting calls, closes everything, and checks that nothing is
  // left.
  void Finish();

 private:
  Reply Send(const std::string& path, const std::string& request,
             const CallMetadata& metadata, int timeout_ms) {
    return PendingCall(subject_.channel, path, request, metadata, timeout_ms)
        .Await();
  }
  template <typename Request>
  Reply Control(const char* method, const Request& request) {
    return Send(absl::StrCat("/convgrad.v1.ConvGradSessions/", method),
                request.SerializePartialAsString(), {}, kPatienceMs);
  }
  // Asks for the number and epoch of the session.
  void Renew(Known* session);
  void Open(v1::OpenSessionRequest request, bool as_it_is);
  void Close(Known* session);
  void Change(const Calls::Call& call, const std::string& path,
              const std::string& request, Known* session);
  void CheckChange(const CallMetadata& metadata, const Reply& reply,
                   Known* session);
  void Repeat(Known* session);
  void PutByStream(const v1::PutTensorsRequest& put,
                   const CallMetadata& metadata, int timeout_ms);
  void GetByStream(const v1::GetTensorsRequest& get,
                   const CallMetadata& metadata, int timeout_ms);
  // Returns the time limit of a call.
  static int TimeoutOf(const CallMetadata& metadata, const Known& session) {
    const bool waits = metadata.sequence > session.number + 1;
    return waits || session.pending > 0 ? kWaitMs : kPatienceMs;
  }
  void CheckLimits() const {
    const Readings gauges = subject_.server->gauges();
    Require(gauges.SumOf("convgrad_kept_bytes") <=
                gauges.SumOf("convgrad_kept_capacity_bytes"),
            "sessions keep no more than they may");
    Require(gauges.SumOf("convgrad_memory_used_bytes") <=
                gauges.SumOf("convgrad_memory_capacity_bytes"),
            "calls hold no more than they may");
  }
  CallMetadata MetadataOf(const Calls::Call& call, bool is_change,
                          const Known& session) const;
  static std::string NewId() {
    static int64_t last = 0;
    const std::string id = absl::StrCat(++last);
    return std::string(16 - id.size(), '0') + id;
  }

  Subject& subject_;
  std::vector<std::unique_ptr<Known>> sessions_;
  std::vector<std::unique_ptr<PendingCall>> waiting_;
};

CallMetadata Sequence::MetadataOf(const Calls::Call& call, bool is_change,
                                  const Known& session) const {
  CallMetadata metadata;
  metadata.session = session.id;
  if (!is_change) return metadata;
  metadata.epoch = session.epoch + call.epochs_ahead() % 4;
  metadata.sequence = session.number + 1 + call.ahead() % 70;
  metadata.call_id = NewId();
  metadata.acknowledged = call.acknowledges_nothing() ? 0 : session.number;
  return metadata;
}

void Sequence::Open(v1::OpenSessionRequest request, bool as_it_is) {
  if (!as_it_is) request.set_open_id(NewId());
  // The session must not end before it is closed.
  if (request.lease_seconds() < 600) request.clear_lease_seconds();
  const Reply reply = Control("OpenSession", request);
  v1::SessionResponse response;
  if (!reply.status.ok()) return;
  Require(response.ParseFromString(reply.response), "a reply can be read");
  for (const auto& session : sessions_) {
    if (session->id == response.session_id()) return;
  }
  sessions_.push_back(std::make_unique<Known>());
  sessions_.back()->id = response.session_id();
  Renew(sessions_.back().get());
}

void Sequence::Renew(Known* session) {
  v1::RenewSessionRequest request;
  request.set_session_id(session->id);
  const Reply reply = Control("RenewSession", request);
  Require(reply.status.ok(), "an open session can be renewed");
  v1::SessionResponse response;
  Require(response.ParseFromString(reply.response), "a reply can be read");
  Require(response.number() >= session->number, "numbers don't go back");
  session->number = response.number();
  session->epoch = response.epoch();
}

void Sequence::Close(Known* session) {
  v1::CloseSessionRequest request;
  request.set_session_id(session->id);
  Require(Control("CloseSession", request).status.ok(),
          "an open session can be closed");
  std::erase_if(sessions_, [&](const auto& it) { return it.get() == session; });
}

void Sequence::CheckChange(const CallMetadata& metadata, const Reply& reply,
                           Known* session) {
  const int64_t before = session->number;
  const bool is_next = metadata.sequence == before + 1;
  if (session->pending == 0) {
    Require(reply.status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED ||
                metadata.sequence > before + 1,
            "the next change is decided");
    if (reply.status.ok() && is_next) {
      Require(reply.number == metadata.sequence, "a change has its number");
    } else if (reply.number >= 0) {
      Require(reply.number == before, "what fails changes nothing");
    }
  }
  Renew(session);
}

void Sequence::Repeat(Known* session) {
  if (session->path.empty() || session->pending > 0) return;
  const Reply reply =
      Send(session->path, session->request, session->metadata, kPatienceMs);
  if (session->reply.status.ok()) {
    Require(reply.status.ok() && reply.response == session->reply.response,
            "a repeat gets the one reply of its change");
  }
  Renew(session);
}

void Sequence::Change(const Calls::Call& call, const std::string& path,
                      const std::string& request, Known* session) {
  const CallMetadata metadata = MetadataOf(call, true, *session);
  // The server may drop the reply of the change before from now on.
  session->path.clear();
  if (call.is_pending() && waiting_.size() < 8) {
    waiting_.push_back(std::make_unique<PendingCall>(
        subject_.channel, path, request, metadata, 10 * kWaitMs));
    ++session->pending;
    return;
  }
  const Reply reply =
      Send(path, request, metadata, TimeoutOf(metadata, *session));
  const bool is_next = metadata.sequence == session->number + 1;
  CheckChange(metadata, reply, session);
  if (!is_next) return;
  session->path = path;
  session->request = request;
  session->metadata = metadata;
  session->reply = reply;
}

void Sequence::PutByStream(const v1::PutTensorsRequest& put,
                           const CallMetadata& metadata, int timeout_ms) {
  const auto stub = v1::ConvGradSessions::NewStub(subject_.channel);
  grpc::ClientContext context;
  AddTo(&context, metadata, timeout_ms);
  v1::PutTensorsResponse response;
  const auto stream = stub->PutTensorsStream(&context, &response);
  v1::PutTensorsStreamRequest message;
  *message.mutable_header() = put;
  message.mutable_header()->clear_payloads();
  for (v1::NamedPut& named : *message.mutable_header()->mutable_tensors()) {
    if (named.tensor().has_inline_()) named.mutable_tensor()->mutable_stream();
  }
  bool goes_on = stream->Write(message);
  for (int i = 0; goes_on && i < put.tensors_size(); ++i) {
    if (!put.tensors(i).tensor().has_inline_()) continue;
    const int index = put.tensors(i).tensor().inline_().payload_index();
    if (index < 0 || index >= put.payloads_size()) continue;
    if (put.payloads(index).empty()) continue;
    message.Clear();
    message.mutable_frame()->set_tensor(i);
    message.add_payloads(put.payloads(index));
    goes_on = stream->Write(message);
  }
  stream->WritesDone();
  const grpc::Status status = stream->Finish();
  ReplyOf("PutTensorsStream", context, status, "");
}

void Sequence::GetByStream(const v1::GetTensorsRequest& get,
                           const CallMetadata& metadata, int timeout_ms) {
  const auto stub = v1::ConvGradSessions::NewStub(subject_.channel);
  grpc::ClientContext context;
  AddTo(&context, metadata, timeout_ms);
  const auto stream = stub->GetTensorsStream(&context, get);
  v1::GetTensorsStreamResponse message;
  while (stream->Read(&message)) continue;
  ReplyOf("GetTensorsStream", context, stream->Finish(), "");
}

void Sequence::Make(const Calls::Call& call) {
  if (call.has_open()) return Open(call.open(), call.as_it_is());
  if (sessions_.empty()) Open({}, false);
  if (sessions_.empty()) return;
  Known* const session = sessions_[call.session() % sessions_.size()].get();
  if (call.repeats()) return Repeat(session);
  if (call.has_close()) return Close(session);
  if (call.has_renew()) return Renew(session);
  if (call.has_resume()) {
    v1::ResumeSessionRequest request = call.resume();
    if (!call.as_it_is()) request.set_session_id(session->id);
    Control("ResumeSession", request);
    return Renew(session);
  }
  if (call.has_put_stream()) {
    session->path.clear();
    v1::PutTensorsRequest put = call.put_stream();
    FitPayloads(&put);
    const auto metadata = MetadataOf(call, !call.other_kind(), *session);
    PutByStream(put, metadata, TimeoutOf(metadata, *session));
    return Renew(session);
  }
  if (call.has_get_stream()) {
    session->path.clear();
    const auto metadata = MetadataOf(call, call.other_kind(), *session);
    GetByStream(call.get_stream(), metadata, TimeoutOf(metadata, *session));
    return Renew(session);
  }
  const Target target = TargetOf(call);
  if (!call.as_it_is()) FitPayloads(target.request.get());
  const std::string bytes = target.request->SerializePartialAsString();
  if (target.is_change != call.other_kind()) {
    Change(call, target.path, bytes, session);
  } else {
    const Reply reply = Send(target.path, bytes,
                             MetadataOf(call, false, *session), kPatienceMs);
    Require(reply.status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED,
            "a read is answered");
  }
  CheckLimits();
}

void Sequence::Finish() {
  for (const auto& call : waiting_) call->Await();
  Require(Control("ListSessions", v1::ListSessionsRequest()).status.ok(),
          "the server goes on");
  while (!sessions_.empty()) Close(sessions_.back().get());
  const absl::Time limit = absl::Now() + absl::Minutes(1);
  while (true) {
    const Readings gauges = subject_.server->gauges();
    if (gauges.SumOf("convgrad_sessions") == 0 &&
        gauges.SumOf("convgrad_kept_bytes") == 0 &&
        gauges.SumOf("convgrad_kept_tensors") == 0 &&
        gauges.SumOf("convgrad_kept_tapes") == 0 &&
        gauges.SumOf("convgrad_memory_used_bytes") == 0 &&
        gauges.SumOf("convgrad_buffers") == 0) {
      return;
    }
    Require(absl::Now() < limit, "closed sessions give everything back");
    absl::SleepFor(absl::Microseconds(200));
  }
}

}  // namespace

std::unique_ptr<google::protobuf::Message> NewInput() {
  return std::make_unique<Calls>();
}

absl::Span<const absl::string_view> Words() { return kWords; }

void Try(const google::protobuf::Message& message) {
  static Subject& subject = *new Subject();
  const auto& input = static_cast<const Calls&>(message);
  Sequence sequence(&subject);
  const int count = std::min(input.calls_size(), kMostCalls);
  for (int i = 0; i < count; ++i) sequence.Make(input.calls(i));
  sequence.Finish();
}

}  // namespace convgrad::fuzz

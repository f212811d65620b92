// `Session` keeps tensors on a server and runs operations on them.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/core/mutex.h"
#include "client/cpp/aligned_buffer.h"
#include "client/cpp/client_options.h"
#include "client/cpp/operation_call.h"
#include "convgrad/v1/session.pb.h"
#include "grpcpp/support/byte_buffer.h"

namespace convgrad {

class CallThreads;
class ChangeSender;
class SessionWire;
struct OutgoingCall;

inline constexpr int64_t kDefaultReplayBytes = int64_t{256} << 20;

// Settings of a new session.
struct SessionOptions {
  // Name for Resume; usable if the server authenticates its clients. May be
  // empty.
  std::string name = {};
  // Time after which the server ends an idle session. Zero: the server's
  // default, 10 min.
  absl::Duration lease = absl::ZeroDuration();
  // Limit on the bytes that the session keeps; 0: none of its own.
  int64_t quota_bytes = 0;
  // Names of clients that may compute with the session's tensors.
  std::vector<std::string> readers = {};
  // The session survives a restart of the server, which must have --state_dir.
  bool durable = false;
  // Limit on the client's copies of the changes that aren't on the server's
  // disk. Near it, the session asks for a snapshot, and beyond it changes wait
  // for that. If no snapshot is possible, the copies are dropped, and a restart
  // of the server ends the session for this client.
  int64_t replay_bytes = kDefaultReplayBytes;
};

// A tensor of the caller that the session keeps under a name.
struct TensorToPut {
  std::string name;
  TensorDescriptor descriptor;
  // Exactly ByteSize(descriptor) bytes, sent without a copy.
  absl::Span<const std::byte> bytes;
};

// Settings of one put.
struct PutOptions {
  absl::Time deadline = absl::InfiniteFuture();
  // Asks the server first which of the bytes it has in any of this client's
  // sessions, and sends only the others.
  bool dedupe = false;
  // Region of the session's server. Tensors that lie in it aren't sent; see
  // OperationCall::region. Null: no shared memory. A durable session doesn't
  // use it.
  const SharedRegion* region = nullptr;
  // The trainer's own data, at most 64 KiB, such as its position in the data
  // set. Resume returns that of the last change that carried one.
  std::string trainer_state = {};
};

// A tensor that the session keeps.
struct FetchedTensor {
  TensorDescriptor descriptor;
  int64_t version = 0;  // the number of the change that wrote it
  AlignedBuffer data;
};

// A change (Put, Drop, or a Run that keeps results) takes effect at most once.
// If a connection or reply is lost, the session repeats the call until it knows
// the outcome (ClientOptions::retries, or their defaults). If a change fails,
// changes that began after it fail with kAborted, reason EPOCH_ENDED. An error
// means that nothing has changed, with these exceptions:
// * kDataLoss, reason NOT_FOUND: the change took effect, and the server no
//   longer has its reply.
// * kCancelled, kDeadlineExceeded, kInternal, kResourceExhausted with a time to
//   come again, kUnauthenticated, kUnavailable and kUnknown may follow a lost
//   reply, so the outcome is unknown. The change doesn't take effect later.
// * The errors below that end the session: a change in flight may have taken
//   effect.
//
// A durable session whose server was started again has the state after its
// durable number. The session then repeats the later changes by itself, and
// its callers notice only the time. The session keeps copies of these changes
// (replay_bytes) and doesn't use shared memory.
//
// Errors of all calls: the server's, with their detail (DetailOf). These end
// the session for its callers. kNotFound, field `session`: the session has
// ended. kFailedPrecondition, reason TAKEN_OVER: another client has resumed it;
// reason RESTORED: the server was started again, and the client can't repeat
// what was lost. kDataLoss, reason MALFORMED, field `snapshot`: the server's
// files of the session are damaged. kUnavailable, from every call: the server
// couldn't be reached for as long as the lease, which a durable session
// outlasts, or while the session was restored.
//
// Thread-safe. Changes take effect one after the other, in the order in which
// they begin. A read sees the changes that began before it.
class Session {
 public:
  // Opens a session on `client.server`, which must be one name. If the name has
  // several addresses, each server behind it must advertise its own
  // (--advertise); later calls go there.
  static absl::StatusOr<std::unique_ptr<Session>> Open(
      const ClientOptions& client, const SessionOptions& options = {});
  // Resumes a session by its id, or by its name if `id` is empty. Asks each
  // server in `client.server`, and each address of its names. The previous
  // user's calls fail with TAKEN_OVER. A session with a trainer_state goes back
  // to the last change that carried one and left no tape.
  static absl::StatusOr<std::unique_ptr<Session>> Resume(
      const ClientOptions& client, const std::string& id,
      const std::string& name = "", int64_t replay_bytes = kDefaultReplayBytes);
  // Blocks until calls in flight have ended. The session stays open on the
  // server until its lease ends.
  ~Session();

  // 16 bytes. If clients have no names, everyone who knows them may use the
  // session.
  const std::string& id() const;
  // Number of the newest change that is known to be committed, as are all
  // changes before it.
  int64_t number() const;
  // Number of the newest change that is known to be on the server's disk.
  int64_t durable_number() const;
  // The server's answer when the session was opened or resumed, or, if that was
  // later, restored after a restart: whether it is durable, its trainer_state,
  // and what differs from the server that computed its state.
  v1::SessionResponse answer() const;

  // Renews the lease, as every other call does. The session's own thread also
  // renews it three times in each lease and at least every 30 s.
  absl::Status Renew();
  // Ends the session; the server frees its memory at once. kNotFound is also
  // returned if an earlier attempt closed the session and its reply was lost.
  // If another client has resumed the session, it stays open, and the error is
  // kFailedPrecondition, reason TAKEN_OVER.
  absl::Status Close();

  // Writes all of the tensors or none, and returns their version. Uses a stream
  // if one message can't hold them (--max_message_bytes); Get does the same.
  absl::StatusOr<int64_t> Put(absl::Span<const TensorToPut> tensors,
                              const PutOptions& options = {});
  absl::StatusOr<int64_t> Put(const std::string& name,
                              const TensorDescriptor& descriptor,
                              absl::Span<const std::byte> bytes);
  // Begins a Put and returns before it is done; many may be in flight at once.
  // The caller must keep the tensors' memory valid until the future is ready.
  // With `dedupe` it blocks for the server's answer before it begins.
  std::future<absl::StatusOr<int64_t>> SubmitPut(
      std::vector<TensorToPut> tensors, const PutOptions& options = {});
  // Return a tensor as it is kept, or in another dtype and layout.
  absl::StatusOr<FetchedTensor> Get(
      const std::string& name, absl::Time deadline = absl::InfiniteFuture());
  absl::StatusOr<FetchedTensor> GetAs(
      const std::string& name, DataType dtype, Layout layout,
      absl::Time deadline = absl::InfiniteFuture());
  // Drop these tensors, all or none, or all tensors of the session.
  absl::Status Drop(absl::Span<const std::string> names);
  absl::Status DropAll();
  // Returns the kept tensors' descriptions, sorted by name.
  absl::StatusOr<std::vector<v1::KeptTensorInfo>> List();

  // Makes the server write the session to its disk, and returns the durable
  // number: that of the last change that left no tape and, once a change has
  // had a trainer_state, carried one. With a `name`, the server keeps this
  // snapshot until DropState, in place of the one that had the name.
  // Errors: kFailedPrecondition if the session isn't durable; kInternal if the
  // server can't write; kResourceExhausted for more than 16 names, or if the
  // client's quota is full.
  absl::StatusOr<int64_t> SaveState(
      const std::string& name = "",
      absl::Time deadline = absl::InfiniteFuture());
  // Goes back to the snapshot with this name, as one change: all tensors are
  // those of the snapshot, and there are no tapes.
  // Errors: kNotFound; kDataLoss, field `name`, if its files are damaged. The
  // session is as before then.
  absl::StatusOr<v1::RestoreStateResponse> RestoreState(
      const std::string& name, absl::Time deadline = absl::InfiniteFuture());
  // Drops the snapshot with this name, if there is one.
  absl::Status DropState(const std::string& name,
                         absl::Time deadline = absl::InfiniteFuture());

  // Does the same as Client::Run, in one message. Operands may be kept tensors,
  // and the session may keep results (OperationCall::kept_operands,
  // kept_results). A call that keeps results is a change.
  absl::StatusOr<OperationReply> Run(const OperationCall& call);
  // Begins a Run and returns before it is done, as SubmitPut does.
  std::future<absl::StatusOr<OperationReply>> SubmitRun(OperationCall call);

 private:
  friend class Networks;
  enum class Access { kRead, kChange };

  Session(std::unique_ptr<SessionWire> wire, const v1::SessionResponse& opened,
          int64_t replay_bytes);
  // Renews the lease. Ends the session for its callers if it isn't this
  // client's any more.
  absl::Status RenewUntil(absl::Time deadline);
  // Resumes the session after a restart of the server.
  absl::StatusOr<v1::SessionResponse> ResumeItself();
  // Sends `request` with `payloads` to a method of this session, repeats it by
  // the retry policy, and returns the reply's message.
  absl::StatusOr<grpc::ByteBuffer> Send(
      const std::string& method, const google::protobuf::Message& request,
      std::vector<grpc::Slice> payloads, Access access, absl::Time deadline);
  // Makes a call without payloads, as Send does, and parses the reply.
  absl::Status Call(const std::string& method,
                    const google::protobuf::Message& request, Access access,
                    absl::Time deadline, google::protobuf::Message* response);

  struct PendingPut;
  struct PendingRun;
  absl::StatusOr<std::shared_ptr<PendingPut>> BeginPut(
      std::vector<TensorToPut> tensors, const PutOptions& options);
  // Asks the server which tensors needn't be sent.
  absl::Status LeaveOutKnown(PendingPut* put);
  // Returns the put as one message or as a stream. `put` must outlive it.
  static absl::StatusOr<OutgoingCall> Encode(const PendingPut& put);
  absl::StatusOr<int64_t> Finish(PendingPut* put);
  absl::StatusOr<std::shared_ptr<PendingRun>> BeginRun(OperationCall call);
  absl::StatusOr<OperationReply> Finish(PendingRun* run);
  // Has a thread finish a put or a run that has begun.
  template <typename Result, typename Pending>
  std::future<absl::StatusOr<Result>> Submit(
      absl::StatusOr<std::shared_ptr<Pending>> pending);
  absl::StatusOr<FetchedTensor> Fetch(const v1::NamedGet& wanted,
                                      absl::Time deadline);
  absl::Status SendDrop(const v1::DropTensorsRequest& request);

  const bool is_durable_;
  const std::unique_ptr<SessionWire> wire_;
  mutable Mutex mutex_;
  v1::SessionResponse answer_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<ChangeSender> changes_;
  // Threads of submitted calls.
  const std::unique_ptr<CallThreads> threads_;
  // Renews the lease. Destroyed first.
  const std::jthread lease_keeper_;
};

}  // namespace convgrad

// Tensors that a server keeps for this client, and operations on them.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cpp/aligned_buffer.h"
#include "client/cpp/client_options.h"
#include "client/cpp/operation_call.h"
#include "convgrad/v1/session.pb.h"
#include "grpcpp/support/byte_buffer.h"

namespace convgrad {

class CallThreads;
class ChangeSender;
class LeaseKeeper;
class SessionWire;

struct SessionOptions {
  // To resume it by, if the server knows this client's name. May be empty.
  std::string name = {};
  // How long it lives without a call. Zero: the server's default, 10 min.
  absl::Duration lease = absl::ZeroDuration();
  int64_t quota_bytes = 0;  // of what it keeps; 0: no limit of its own
  // Names of clients that may compute with its tensors.
  std::vector<std::string> readers = {};
};

// A tensor of the caller's, to be kept under a name.
struct TensorToPut {
  std::string name;
  TensorDescriptor descriptor;
  // Exactly ByteSize(descriptor), sent from where they lie.
  absl::Span<const std::byte> bytes;
};

struct PutOptions {
  absl::Time deadline = absl::InfiniteFuture();
  // Asks the server first which of the bytes it has, in any session of this
  // client, and sends only the others.
  bool dedupe = false;
  // Of the session's server. Tensors that lie in it aren't sent; as with
  // OperationCall::region. Null: no shared memory.
  const SharedRegion* region = nullptr;
};

// A tensor that the session keeps.
struct FetchedTensor {
  TensorDescriptor descriptor;
  int64_t version = 0;  // the number of the change that wrote it
  AlignedBuffer data;
};

// Every change takes effect once: where a connection or a reply is lost, the
// session repeats the call until it knows (ClientOptions::retries, or their
// defaults), so that an error, too, says that nothing has changed; but for
// DEADLINE_EXCEEDED and UNAVAILABLE after the last attempt. If a change fails,
// those that began behind it fail with kAborted, reason EPOCH_ENDED.
//
// Errors of all calls: the server's, with their detail (DetailOf): kNotFound if
// the session has ended; kFailedPrecondition, reason TAKEN_OVER, if it was
// resumed elsewhere. Thread-safe: changes take effect one after the other, in
// the order in which they begin, and reads see those that began before.
class Session {
 public:
  // Opens a session on `client.server`, which must be one server.
  static absl::StatusOr<std::unique_ptr<Session>> Open(
      const ClientOptions& client, const SessionOptions& options = {});
  // Goes on with a session, by its id, or by its name if that is empty. Who had
  // it before gets TAKEN_OVER.
  static absl::StatusOr<std::unique_ptr<Session>> Resume(
      const ClientOptions& client, const std::string& id,
      const std::string& name = "");
  // Waits for what is under way, and leaves the session open, for its lease.
  ~Session();

  // 16 bytes. Who has them may use the session, if clients have no names.
  const std::string& id() const;
  // Of the last committed change.
  int64_t number() const;

  // Lengthens the lease, as every other call does. A thread of the session's
  // does so in any case, three times in each lease and every 30 s.
  absl::Status Renew();
  // Ends the session: the server forgets it at once. kNotFound may mean that an
  // attempt has done so whose reply was lost.
  absl::Status Close();

  // Writes tensors, all of them or none. Returns their version. What one
  // message of the server's can't hold (--max_message_bytes) goes as a stream,
  // and so does what Get brings.
  absl::StatusOr<int64_t> Put(absl::Span<const TensorToPut> tensors,
                              const PutOptions& options = {});
  absl::StatusOr<int64_t> Put(const std::string& name,
                              const TensorDescriptor& descriptor,
                              absl::Span<const std::byte> bytes);
  // Begins a Put and returns before it is done. Changes take effect in the
  // order in which they begin, many under way at once. The tensors' memory is
  // lent until the future is ready. With `dedupe` it waits for the server's
  // answer before it begins.
  std::future<absl::StatusOr<int64_t>> SubmitPut(
      std::vector<TensorToPut> tensors, const PutOptions& options = {});
  // Returns a tensor as it is kept, or in another dtype and layout.
  absl::StatusOr<FetchedTensor> Get(
      const std::string& name, absl::Time deadline = absl::InfiniteFuture());
  absl::StatusOr<FetchedTensor> GetAs(
      const std::string& name, DataType dtype, Layout layout,
      absl::Time deadline = absl::InfiniteFuture());
  absl::Status Drop(absl::Span<const std::string> names);
  absl::Status DropAll();
  // Returns what the session keeps, by name.
  absl::StatusOr<std::vector<v1::KeptTensorInfo>> List();

  // As Client::Run, on one message. Operands may be kept tensors, results may
  // stay (OperationCall::kept_operands, kept_results); if some do, the call is
  // a change.
  absl::StatusOr<OperationReply> Run(const OperationCall& call);
  // Begins a Run, as SubmitPut does a Put.
  std::future<absl::StatusOr<OperationReply>> SubmitRun(OperationCall call);

 private:
  friend class Networks;
  enum class Access { kRead, kChange };

  Session(std::unique_ptr<SessionWire> wire, const v1::SessionResponse& opened);
  // Sends `request` with `payloads` to a method of this session, repeats it as
  // the session's calls are, and returns the reply's message.
  absl::StatusOr<grpc::ByteBuffer> Send(
      const std::string& method, const google::protobuf::Message& request,
      std::vector<grpc::Slice> payloads, Access access, absl::Time deadline);
  absl::Status Renew(absl::Time deadline);

  struct PendingPut;
  struct PendingRun;
  absl::StatusOr<std::shared_ptr<PendingPut>> BeginPut(
      std::vector<TensorToPut> tensors, const PutOptions& options);
  // Asks which tensors needn't be sent.
  absl::Status LeaveOutKnown(PendingPut* put);
  // Makes what is sent, as one message or as a stream.
  absl::Status Encode(PendingPut* put);
  absl::StatusOr<int64_t> Finish(PendingPut* put);
  absl::StatusOr<std::shared_ptr<PendingRun>> BeginRun(OperationCall call);
  absl::StatusOr<OperationReply> Finish(PendingRun* run);
  // Has a thread finish a put or a run that has begun.
  template <typename Result, typename Pending>
  std::future<absl::StatusOr<Result>> Submit(
      absl::StatusOr<std::shared_ptr<Pending>> pending);
  absl::StatusOr<FetchedTensor> Fetch(const v1::NamedGet& wanted,
                                      absl::Time deadline);
  absl::Status Drop(const v1::DropTensorsRequest& request);

  const std::unique_ptr<SessionWire> wire_;
  const std::unique_ptr<ChangeSender> changes_;
  // Of what was submitted.
  const std::unique_ptr<CallThreads> threads_;
  // Goes first.
  const std::unique_ptr<LeaseKeeper> lease_keeper_;
};

}  // namespace convgrad

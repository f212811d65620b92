// Sends the changes of a session, each of which takes effect once whatever
// becomes of connections and replies. Knows nothing of what a change is.
// Internal to the client.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "client/cpp/calls/call_threads.h"
#include "client/cpp/calls/retries.h"
#include "convgrad/v1/session.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"

namespace convgrad {

// Numbers changes in the order of Begin and has each sent by the thread that
// calls Finish, many at once; session.proto has the protocol. Once one has
// failed, it is waited for what becomes of the others: those behind it fail,
// too, and what comes later goes on in the next epoch.
//
// Thread-safe.
class ChangeSender {
 public:
  // Sends a call in a context that has its session's metadata, and returns the
  // reply's message.
  using Send =
      std::function<absl::StatusOr<grpc::ByteBuffer>(grpc::ClientContext*)>;
  // Is told what the server has refused a change with, while `send` isn't
  // running. Returns whether it has given `send` something else to send, which
  // then goes in the change's place. Mustn't call the sender.
  using Instead = std::function<bool(const absl::Status&)>;
  // A change under way. Its members are the sender's lock's, but for
  // `attempts`, which is its thread's.
  struct Pending {
    int64_t sequence = 0;
    absl::Time deadline;
    Instead instead;  // may be null
    std::string call_id;
    int attempts = 0;
    // Of the attempt under way; null if there is none.
    grpc::ClientContext* context = nullptr;
    // Its epoch has ended, and it isn't committed.
    bool is_over = false;
    // `instead` has changed it: its next attempt needn't wait.
    bool goes_at_once = false;
    // What the server refused it with; OK if that was lost on the way.
    absl::Status error;
    // What its caller gets; nullopt as long as it goes on.
    std::optional<absl::Status> outcome;
    // Since when its caller has given it up, and which change came next then.
    std::optional<absl::Time> void_since;
    int64_t boundary = std::numeric_limits<int64_t>::max();
  };

  // `opened` is as the server gave it. `send_void` sends a change that fails:
  // in place of one that its caller has given up.
  ChangeSender(const v1::SessionResponse& opened, const RetryPolicy& retries,
               Send send_void);
  // Waits for the changes under way.
  ~ChangeSender();

  // Gives the next change its number; Finish has to follow. Waits while as many
  // are under way as the server lets be.
  // Errors: what has ended the session; kDeadlineExceeded.
  absl::StatusOr<std::shared_ptr<Pending>> Begin(absl::Time deadline,
                                                 Instead instead = nullptr);
  // Has `send` send the change until the server has said what became of it.
  // Errors: the server's; kAborted, reason EPOCH_ENDED, if one before it has
  // failed; the last attempt's, if what became of it is unknown: the session
  // then sees to it that it won't happen later.
  absl::StatusOr<grpc::ByteBuffer> Finish(
      const std::shared_ptr<Pending>& change, const Send& send);
  // Both in one.
  absl::StatusOr<grpc::ByteBuffer> Change(absl::Time deadline,
                                          const Send& send);
  // The same of a read, which sees all changes that have begun before. Errors:
  // kAborted, reason EPOCH_ENDED, if one of those fails.
  absl::StatusOr<grpc::ByteBuffer> Read(absl::Time deadline, const Send& send);

  // Ends the session for its callers: what is under way, and whatever comes
  // later, fails with `why`.
  void Stop(const absl::Status& why);

  const std::string& id() const { return id_; }
  // Of the last change that is known, with all before it, to be committed.
  int64_t number() const;

 private:
  struct Answer {
    absl::StatusOr<grpc::ByteBuffer> message;
    // The session's last committed change; -1 if the server didn't say.
    int64_t number = -1;
  };
  // What follows from an answer.
  enum class Next { kCommitted, kEpochEnded, kRepeat, kGivenUp, kStopped };
  struct PendingRead {
    int64_t after;
    bool is_lost = false;
    grpc::ClientContext* context = nullptr;
  };

  Answer SendOnce(const Send& send, grpc::ClientContext* context) const;
  // Sets the metadata of an attempt. Returns false if the change is over.
  bool BeginAttempt(Pending* change, grpc::ClientContext* context);
  static Next Judge(const Pending& change, const Answer& answer);
  // What a change's thread does next: it sends it again, or returns the answer,
  // or the outcome.
  enum class Then { kAgain, kAnswer, kOutcome };
  Then Learn(const std::shared_ptr<Pending>& change, const Answer& answer);
  // Waits until the next attempt. Returns false if it is too late for one.
  bool AwaitAttempt(const Pending& change, const absl::Status& passing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp(const std::shared_ptr<Pending>& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends what was given up before a change that is committed: so was it.
  void SettleVoidsBefore(int64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopLocked(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins the next epoch once it is known what became of all of the last one.
  void RecoverIfSettled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a change that ended its epoch goes into the next one.
  bool GoesOn(Pending* change) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoseReads(int64_t first, int64_t boundary)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Acknowledged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string id_;
  const int64_t window_;
  const absl::Duration lease_;
  const RetryPolicy retries_;
  const Send send_void_;
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_);
  // The number of the change that begins next.
  int64_t next_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::shared_ptr<Pending>> pending_ ABSL_GUARDED_BY(mutex_);
  std::set<PendingRead*> reads_ ABSL_GUARDED_BY(mutex_);
  // Whether the epoch has ended at the server.
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Why every call fails; OK until Stop.
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  // Of what was given up. Goes first.
  CallThreads void_threads_;
};

}  // namespace convgrad

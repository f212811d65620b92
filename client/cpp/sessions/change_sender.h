// `ChangeSender` sends the changes of a session. Each change takes effect at
// most once, even if connections or replies are lost. The sender treats a
// change's content as opaque. Internal to the client.
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

// Numbers changes in the order of Begin. The thread that calls Finish sends its
// change, so many changes are in flight at once. session.proto defines the
// protocol. After a change has failed, the sender waits for the outcome of all
// changes in flight: those behind the failed one fail as well. Later changes go
// into the next epoch.
//
// Thread-safe.
class ChangeSender {
 public:
  // Sends a call in a context that has its session's metadata, and returns the
  // reply's message.
  using Send =
      std::function<absl::StatusOr<grpc::ByteBuffer>(grpc::ClientContext*)>;
  // Receives the error with which the server refused a change, while `send`
  // isn't running. Returns true if it has replaced what `send` sends; the
  // sender then sends that under the change's number. Must not call the sender.
  using Instead = std::function<bool(const absl::Status&)>;
  // A change in flight. The sender's lock guards its members.
  struct Pending {
    int64_t sequence = 0;
    absl::Time deadline;
    Instead instead;  // may be null
    std::string call_id;
    int attempts = 0;
    // Context of the running attempt; null if there is none.
    grpc::ClientContext* context = nullptr;
    // True if its epoch has ended and the change isn't committed.
    bool is_over = false;
    // `instead` has replaced it, so the next attempt needn't wait.
    bool goes_at_once = false;
    // The server's refusal; OK if the reply with it was lost.
    absl::Status error;
    // The caller's result; nullopt while the change is in flight.
    std::optional<absl::Status> outcome;
    // Time at which its caller gave it up, if any, and the number of the change
    // that began next.
    std::optional<absl::Time> void_since;
    int64_t boundary = std::numeric_limits<int64_t>::max();
  };

  // `opened` is the server's response. `send_void` sends a change that always
  // fails; the sender uses it in place of a change that its caller has given
  // up.
  ChangeSender(const v1::SessionResponse& opened, const RetryPolicy& retries,
               Send send_void);
  // Blocks until the changes in flight have ended.
  ~ChangeSender();

  // Gives the next change its number; Finish must follow. Blocks while the
  // number of changes in flight is at the server's limit.
  // Errors: the status that ended the session; kDeadlineExceeded.
  absl::StatusOr<std::shared_ptr<Pending>> Begin(absl::Time deadline,
                                                 Instead instead = nullptr);
  // Sends the change until the server has reported its outcome.
  // Errors: the server's; kAborted, reason EPOCH_ENDED, if an earlier change
  // has failed; the last attempt's status if the outcome is unknown. In the
  // last case the sender makes sure that the change doesn't take effect later.
  absl::StatusOr<grpc::ByteBuffer> Finish(
      const std::shared_ptr<Pending>& change, const Send& send);
  // Calls Begin and Finish.
  absl::StatusOr<grpc::ByteBuffer> Change(absl::Time deadline,
                                          const Send& send);
  // Sends a read, which sees all changes that began before it.
  // Errors: as Finish; kAborted, reason EPOCH_ENDED, if one of those changes
  // fails.
  absl::StatusOr<grpc::ByteBuffer> Read(absl::Time deadline, const Send& send);

  // Ends the session for its callers: calls in flight and later calls fail with
  // `why`.
  void Stop(const absl::Status& why);

  const std::string& id() const { return id_; }
  // Returns the highest number up to which all changes are known to be
  // committed.
  int64_t number() const;

 private:
  struct Answer {
    absl::StatusOr<grpc::ByteBuffer> message;
    // The session's last committed change; -1 if the server didn't say.
    int64_t number = -1;
  };
  // The consequence of an answer.
  enum class Next { kCommitted, kEpochEnded, kRepeat, kGivenUp, kStopped };
  struct ReadUnderWay {
    int64_t after;
    bool is_lost = false;
    grpc::ClientContext* context = nullptr;
  };

  Answer SendOnce(const Send& send, grpc::ClientContext* context) const;
  // Sets the metadata of an attempt. Returns false if the change has an
  // outcome.
  bool BeginAttempt(Pending* change, grpc::ClientContext* context);
  static Next Judge(const Pending& change, const Answer& answer);
  // The next action of a change's thread: send it again, return the answer, or
  // return the outcome.
  enum class Then { kAgain, kAnswer, kOutcome };
  Then Learn(const std::shared_ptr<Pending>& change, const Answer& answer);
  // Blocks until the next attempt. Returns false if it would be too late.
  bool AwaitAttempt(const Pending& change, const absl::Status& passing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp(const std::shared_ptr<Pending>& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends voided changes numbered before a committed one, because they were
  // committed as well.
  void SettleVoidsBefore(int64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopLocked(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins the next epoch once the outcome of every change of the last one is
  // known.
  void RecoverIfSettled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a change that ended its epoch is repeated in the next one.
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
  // Number of the next change.
  int64_t next_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::shared_ptr<Pending>> pending_ ABSL_GUARDED_BY(mutex_);
  std::set<ReadUnderWay*> reads_ ABSL_GUARDED_BY(mutex_);
  // True if the server has ended the epoch.
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Error of every call; OK until Stop.
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  // Threads that settle changes that were given up. The last member, because
  // its tasks use the others.
  CallThreads void_threads_;
};

}  // namespace convgrad

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
#include "client/cpp/sessions/replay.h"
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
// If the session is durable and its server was started again, the sender
// resumes the session and repeats the changes that the server has lost, in
// their order and with their call ids.
//
// Thread-safe.
class ChangeSender {
 public:
  using Send = SendCall;
  // Receives the error with which the server refused a change, while `send`
  // isn't running. Returns true if it has replaced what `send` sends; the
  // sender then sends that under the change's number. Must not call the sender.
  using Instead = std::function<bool(const absl::Status&)>;
  // What a durable session needs to survive a restart of its server.
  struct Durability {
    // Resumes the session, and returns the server's answer.
    std::function<absl::StatusOr<v1::SessionResponse>()> resume;
    // Has the server write a snapshot, and returns the durable number.
    std::function<absl::StatusOr<int64_t>()> save;
    // Limit on the bytes of kept changes; see Replay.
    int64_t replay_bytes = 0;
  };
  // A change in flight. The sender's lock guards its members.
  struct Pending {
    int64_t sequence = 0;
    absl::Time deadline;
    Instead instead;    // may be null
    OwnedChange owned;  // only in a durable session
    std::string call_id;
    // The call id of the change before it was given up.
    std::string given_up_id;
    int attempts = 0;
    // False before its first attempt, and again when the session was restored.
    bool is_sent = false;
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
    // Whether it was committed before a restart of the server.
    bool was_committed = false;
    // Whether it was committed before the restart, and no caller waits for it
    // any more: it was answered or given up.
    bool is_repeat = false;
  };

  // A read in flight. The sender's lock guards its members.
  struct PendingRead {
    // The number of the last change that the read must see.
    int64_t after = 0;
    bool is_lost = false;
    // False: an attempt without an answer is the last, because it may still be
    // running on the server.
    bool may_repeat = true;
    grpc::ClientContext* context = nullptr;
  };

  // `opened` is the server's response. `send_void` sends a change that always
  // fails; the sender uses it in place of a change that its caller has given
  // up. `durability` is null unless the session is durable.
  ChangeSender(const v1::SessionResponse& opened, const RetryPolicy& retries,
               Send send_void,
               std::optional<Durability> durability = std::nullopt);
  // Blocks until the changes in flight have ended.
  ~ChangeSender();

  // Gives the next change its number; Finish must follow. Blocks while the
  // number of changes in flight is at the server's limit, or the session is
  // being restored. `owned` is the same change for a durable session.
  // Errors: the status that ended the session; kDeadlineExceeded.
  absl::StatusOr<std::shared_ptr<Pending>> Begin(absl::Time deadline,
                                                 Instead instead = nullptr,
                                                 OwnedChange owned = {});
  // Sends the change until the server has reported its outcome.
  // Errors: the server's; kAborted, reason EPOCH_ENDED, if an earlier change
  // has failed; the last attempt's status if the outcome is unknown. In the
  // last case the sender makes sure that the change doesn't take effect later.
  absl::StatusOr<grpc::ByteBuffer> Finish(
      const std::shared_ptr<Pending>& change, const Send& send);
  // Calls Begin and Finish.
  absl::StatusOr<grpc::ByteBuffer> Change(absl::Time deadline, const Send& send,
                                          OwnedChange owned = {});
  // Begins a read, which sees all changes that began before it; FinishRead must
  // follow. Errors: the status that ended the session.
  absl::StatusOr<std::shared_ptr<PendingRead>> BeginRead(
      bool may_repeat = true);
  // Sends the read until the server has answered it.
  // Errors: as Finish; kAborted, reason EPOCH_ENDED, if a change that it must
  // see fails.
  absl::StatusOr<grpc::ByteBuffer> FinishRead(
      const std::shared_ptr<PendingRead>& read, absl::Time deadline,
      const Send& send);
  // Calls BeginRead and FinishRead.
  absl::StatusOr<grpc::ByteBuffer> Read(absl::Time deadline, const Send& send);

  // Ends the session for its callers and returns `why`, with which calls in
  // flight and later calls fail, if `epoch` is still that of the next change.
  // Returns OK if this client has resumed the session since, or is resuming it.
  absl::Status StopIn(int64_t epoch, const absl::Status& why);

  // Returns the epoch of the next change.
  int64_t epoch() const;
  // Does the same when the session isn't being restored.
  int64_t AwaitEpoch();

  const std::string& id() const { return id_; }
  // Returns the highest number up to which the callers of all changes know that
  // these are committed.
  int64_t number() const;
  // Returns the number of the newest change that is known to be on the server's
  // disk.
  int64_t durable_number() const;

 private:
  struct Answer {
    absl::StatusOr<grpc::ByteBuffer> message;
    // The session's last committed change, and the last one on disk; -1 if the
    // server didn't say.
    int64_t number = -1;
    int64_t durable_number = -1;
    // How often the session had been restored when the attempt began.
    int64_t restores = 0;
  };
  // The consequence of an answer.
  enum class Next {
    kCommitted,
    kEpochEnded,
    kRepeat,
    kGivenUp,
    kStopped,
    kRestored
  };
  Answer SendOnce(const Send& send, grpc::ClientContext* context,
                  int64_t restores) const;
  // Begins an attempt as soon as the session isn't being restored, and returns
  // `restores_`. Errors: the change's outcome; kDeadlineExceeded.
  absl::StatusOr<int64_t> BeginAttempt(const std::shared_ptr<Pending>& change,
                                       grpc::ClientContext* context);
  // Sets the metadata of an attempt.
  void FillAttempt(Pending* change, grpc::ClientContext* context)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static Next Judge(const Pending& change, const Answer& answer);
  // The next action of a change's thread: send it again, return the answer, or
  // return the outcome.
  enum class Then { kAgain, kAnswer, kOutcome };
  Then Learn(const std::shared_ptr<Pending>& change,
             const grpc::ClientContext& context, const Answer& answer);
  // Blocks until the next attempt. Returns false if it would be too late.
  bool AwaitAttempt(const Pending& change, const absl::Status& status)
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
  // Returns whether all these outcomes are known.
  bool AreSettled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a change that ended its epoch is repeated in the next one.
  bool GoesOn(Pending* change) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoseReads(int64_t first, int64_t boundary)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the attempts of a read. Releases the lock meanwhile.
  absl::StatusOr<grpc::ByteBuffer> ReadUntil(absl::Time deadline,
                                             const Send& send,
                                             PendingRead* read)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error of a call behind change `sequence`, which failed with `why`.
  static absl::Status EpochEnded(int64_t sequence, const absl::Status& why);
  int64_t Acknowledged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Has a thread resume the session on a server that was started again, and
  // repeat its changes. Until then, calls wait (MustWait).
  void Restore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Resume();
  void RepeatChanges(const v1::SessionResponse& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns an error unless all changes after `number` can be sent again.
  absl::Status CheckKept(int64_t number) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks a committed change as one that is sent again as it was, without a
  // deadline.
  void Revive(Pending* change) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has a thread send these changes, one after the other. In the meantime,
  // callers' threads may send other changes.
  void BeginRepeating() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RepeatInTurn();
  std::shared_ptr<Pending> FirstRepeat() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the session if the first change in flight has failed but it, or one
  // behind it, was committed before the restart. Returns whether it did.
  bool StopsRepeats() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static absl::Status DeadlinePassed(const std::string& when);
  // Returns whether the session is being restored, or change `sequence` is
  // farther ahead of those being repeated than the server takes.
  bool MustWait(int64_t sequence) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps a change that was committed, in case the server loses it.
  void KeepCommitted(const Pending& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks for a snapshot if much is kept.
  void SaveIfNeeded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string id_;
  const int64_t window_;
  const absl::Duration lease_;
  const RetryPolicy retries_;
  const Send send_void_;
  const std::optional<Durability> durability_;
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_);
  // Number of the next change.
  int64_t next_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::shared_ptr<Pending>> pending_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<PendingRead>> reads_ ABSL_GUARDED_BY(mutex_);
  // True if the server has ended the epoch.
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Error of every call; OK until StopLocked.
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  Replay replay_ ABSL_GUARDED_BY(mutex_);
  bool is_restoring_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether a thread repeats committed changes.
  bool is_repeating_ ABSL_GUARDED_BY(mutex_) = false;
  // How often the session was restored. Answers to earlier attempts don't
  // count.
  int64_t restores_ ABSL_GUARDED_BY(mutex_) = 0;
  // Threads that settle changes that were given up. These are the last members,
  // because their tasks use the others.
  CallThreads void_threads_;
  // Threads that restore the session and ask for snapshots.
  CallThreads restore_threads_;
};

}  // namespace convgrad

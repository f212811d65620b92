// `ChangeOrder` decides which change of a session runs next, and which reply a
// repeated change gets. Each change takes effect exactly once, in the order of
// the client's numbers. `ChangeOrder` doesn't know the content of a change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace convgrad {

// `ChangeId` is the metadata that identifies one change. Value type.
struct ChangeId {
  int64_t epoch = 0;
  int64_t sequence = 0;
  // 16 random bytes, the same on each repeat of the call.
  std::string call_id;
  // The client has the replies of all changes up to this number.
  int64_t acknowledged = 0;
};

// Rules, where n is the number of the last committed change:
// * Change n+1 runs. Changes n+2 to n+kWindow wait for their turn. If n+1
//   doesn't arrive within kMissingTimeout, they are ABORTED.
// * A repeat has the number and call id of a change that runs or was committed.
//   It gets the reply of that change, whatever its epoch. A reply is kept until
//   it is acknowledged, for kReplyLifetime at most; a later repeat is answered
//   DATA_LOSS.
// * When n+1 has all the memory that it waits for, n+2 is admitted early: it
//   may reserve memory and read its message before its turn. Later changes
//   aren't admitted early, because they would hold memory that an earlier
//   change could need.
// * If n+1 fails, its epoch ends: its changes that aren't committed are
//   ABORTED, also those that arrive later. The client continues with n+1 in the
//   next epoch.
// * If n+1 is BUSY (kResourceExhausted, reason BUSY), nothing is decided, and
//   the client repeats it. If n+2 was admitted early, it is BUSY as well. No
//   change is admitted early until n+1 is committed.
// * Resume starts a new epoch as well. Calls of older epochs are refused with
//   FAILED_PRECONDITION, reason TAKEN_OVER.
// * After Restore and until Resume, calls of the last client's epochs, and
//   reads that wait for a later change, are refused with FAILED_PRECONDITION,
//   reason RESTORED.
//
// Thread-compatible: the session's lock guards it. It calls no callback; it
// adds callbacks to `*notices`, and the caller runs them (Tell) after it has
// released the lock.
class ChangeOrder {
 public:
  static constexpr int64_t kWindow = 64;
  static constexpr absl::Duration kMissingTimeout = absl::Seconds(10);
  static constexpr absl::Duration kReplyLifetime = absl::Minutes(10);

  // The answer of a committed change.
  using Reply = std::shared_ptr<const void>;
  // The decision about a call: it runs, repeats a change, or is refused.
  struct Decision {
    enum class Kind {
      kRun,     // The call runs now.
      kRepeat,  // It repeats a committed change and gets `reply`.
      kRefuse,  // The error is `why`.
    };
    static Decision Run() { return {Kind::kRun, nullptr, absl::OkStatus()}; }
    static Decision Repeat(Reply reply) {
      return {Kind::kRepeat, std::move(reply), absl::OkStatus()};
    }
    static Decision Refuse(absl::Status why) {
      return {Kind::kRefuse, nullptr, std::move(why)};
    }
    bool runs() const { return kind == Kind::kRun; }

    Kind kind;
    Reply reply;
    absl::Status why;
  };
  using Decided = std::function<void(Decision)>;
  using Notices = std::vector<std::pair<Decided, Decision>>;

  // The epochs that a session has had. Value type.
  struct Epochs {
    int64_t newest = 1;
    // The first one since the last Resume. Earlier ones are those of clients
    // from which the session was taken over.
    int64_t first = 1;
    // The id of the call that resumed the session; empty if it had none.
    std::string resumed_by = {};
  };

  // A committed change that the client hasn't acknowledged. Value type.
  struct Unacknowledged {
    int64_t number = 0;
    std::string call_id;
    Reply reply;  // Null if it is no longer kept.
    int64_t reply_bytes = 0;
  };

  // A waiting call.
  struct Caller {
    absl::Time deadline;
    Decided decided;
    // Called at most once when the change is admitted early, possibly after it
    // was decided. Null if the change can't be admitted early.
    std::function<void()> admit_early = nullptr;
  };

  // Takes a change that has arrived. It waits until its deadline at most. If
  // the decision is to run, Commit or Fail must follow. Returns an id for
  // Withdraw. Errors in the decision: kFailedPrecondition, reasons TAKEN_OVER
  // and OUT_OF_ORDER; kAborted, reasons EPOCH_ENDED and OUT_OF_ORDER;
  // kDeadlineExceeded; kResourceExhausted, reason BUSY; kDataLoss if the change
  // was committed and its reply is no longer kept.
  uint64_t Arrive(ChangeId change, absl::Time now, Caller caller,
                  Notices* notices);

  // Makes a read wait until change `number` is committed; then it runs. Returns
  // an id for Withdraw. Errors in the decision: kFailedPrecondition, kAborted,
  // kDeadlineExceeded.
  uint64_t AwaitNumber(int64_t number, absl::Time now, Caller caller,
                       Notices* notices);

  // Removes a waiter; its callback is then never called. Returns false if it is
  // too late: the change runs, or its callback is about to run.
  bool Withdraw(uint64_t waiter);

  // Admits the next change early if `change` runs. Requires: `change` waits for
  // no more memory.
  void AdmitNextEarly(const ChangeId& change, Notices* notices);

  // Ends the running change as committed. Requires: its effect is visible. The
  // reply counts as `reply_bytes` while it is kept.
  void Commit(Reply reply, int64_t reply_bytes, absl::Time now,
              Notices* notices);
  // Ends the running change as failed. Returns the status of its call: `why`,
  // or TAKEN_OVER if another epoch has begun, because the client would
  // otherwise take that epoch for its next one.
  absl::Status Fail(const absl::Status& why, absl::Time now, Notices* notices);

  // Returns OK if changes of `epoch` may run. Errors: kFailedPrecondition,
  // reasons TAKEN_OVER, RESTORED and OUT_OF_ORDER; kAborted, reason
  // EPOCH_ENDED, if a failure has ended it.
  absl::Status CheckEpoch(int64_t epoch) const;
  // Returns OK if the client that had `epoch` still has the session: nobody has
  // resumed it since, or only the call `call_id` of this client, unless that is
  // empty. Errors: kFailedPrecondition, reason TAKEN_OVER.
  absl::Status CheckHolder(int64_t epoch,
                           const std::string& call_id = "") const;
  // Starts a new epoch for the call `call_id` and returns it.
  int64_t Resume(Notices* notices, std::string call_id = "");

  // Returns the unacknowledged changes in the order of their numbers.
  std::vector<Unacknowledged> unacknowledged() const;
  // Makes this the order of a session that was restored after change `number`.
  // `epochs.newest` is greater than all epochs that the session has had.
  // Requires: no call has arrived.
  void Restore(int64_t number, Epochs epochs,
               std::vector<Unacknowledged> changes, absl::Time now);
  // Runs `settled` when no change of an earlier epoch runs. number() then stays
  // the same until a change of the epoch that Resume returned commits.
  void AwaitSettled(Decided settled, Notices* notices);

  // Refuses calls that have waited too long, and drops replies that the client
  // hasn't acknowledged in time. Call it regularly.
  void Expire(absl::Time now, Notices* notices);
  // Refuses all waiting and all later calls with `why`.
  void Close(const absl::Status& why, Notices* notices);

  // The number of the last committed change; 0 before the first.
  int64_t number() const { return number_; }
  int64_t epoch() const { return epochs_.newest; }
  const Epochs& epochs() const { return epochs_; }
  int64_t reply_bytes() const { return reply_bytes_; }

 private:
  struct Waiter {
    uint64_t id;
    absl::Time since;
    Caller caller;
    bool is_early = false;
  };
  // One change, and the calls that wait for its reply.
  struct Pending {
    int64_t epoch;
    std::string call_id;
    std::vector<Waiter> waiters;
  };
  struct Committed {
    std::string call_id;
    Reply reply;  // Null when it is no longer kept.
    int64_t bytes;
    absl::Time since;
  };

  // Returns the error that refuses the change; OK if it runs or waits.
  absl::Status Check(const ChangeId& change) const;
  // Returns the error of a read that can't wait for change `number`.
  absl::Status CheckAhead(int64_t number) const;
  void Acknowledge(int64_t number);
  // Runs the next change, if it has arrived, and the reads that wait for
  // number_.
  void Advance(Notices* notices);
  void TellEarlyAdmission(Notices* notices);
  Pending EndRunning(absl::Time now);
  // Undoes the arrival of the change that ran. Its repeats stay and wait.
  void PutBack(Pending change, const absl::Status& why, Notices* notices);
  void RefuseWaiting(const absl::Status& why, Notices* notices);
  // Moves the callbacks of the waiters to `*notices`.
  static void Decide(std::vector<Waiter> waiters, const Decision& decision,
                     Notices* notices);
  absl::Status Missing() const;
  absl::Status EpochEnded() const;

  int64_t number_ = 0;
  Epochs epochs_;
  // True from Restore to Resume.
  bool is_restored_ = false;
  int64_t acknowledged_ = 0;
  uint64_t last_waiter_ = 0;
  std::string last_failure_;
  // The time when the last change ended. The waiting changes have waited for
  // the next one since then.
  absl::Time stalled_since_ = absl::InfinitePast();
  // Change number_ + 1, with the calls that wait for its reply.
  std::optional<Pending> running_;
  bool next_is_early_ = false;
  bool runs_alone_ = false;
  std::map<int64_t, Pending> waiting_;
  std::map<int64_t, Committed> replies_;
  int64_t reply_bytes_ = 0;
  std::vector<std::pair<int64_t, Waiter>> readers_;
  std::vector<Decided> resuming_;
  // The error of all calls after Close; OK before.
  absl::Status closed_;
};

// Returns whether `status` is a temporary refusal: its reason is BUSY.
bool IsBusy(const absl::Status& status);

// Calls all callbacks of `notices`. Requires: no lock is held.
void Tell(const ChangeOrder::Notices& notices);

// `Telling` tells its notices when it is destroyed. Declare it before the lock,
// so that this is after the lock's release.
struct Telling {
  ~Telling() { Tell(notices); }
  ChangeOrder::Notices notices;
};

}  // namespace convgrad

// `ChangeOrder` decides which change of a session runs next, and which reply a
// repeated change gets. Each change takes effect exactly once, in the order of
// the numbers that the client gave. It doesn't know what a change does.
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
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace convgrad {

// The metadata that names one change. Value type.
struct ChangeId {
  int64_t epoch = 0;
  int64_t sequence = 0;
  // 16 random bytes, the same on each repeat of the call.
  std::string call_id;
  // The client has the replies of all changes up to this number.
  int64_t acknowledged = 0;
};

// The rules, where n is the number of the last committed change:
//  * n+1 runs. n+2 to n+kWindow wait for their turn, for kMissingTimeout at
//    most while n+1 isn't there: then they are ABORTED.
//  * A repeat, which has number and call id of a change that runs or was
//    committed, gets that change's one reply, whatever its epoch. Replies are
//    kept until they are acknowledged, for kReplyLifetime at most: after that a
//    repeat is answered DATA_LOSS.
//  * Once n+1 has all the memory that it waits for, n+2 is admitted early: it
//    may reserve memory and read its message before its turn. Later changes
//    aren't, because an early change holds memory that an earlier one could
//    need.
//  * If n+1 fails, its epoch ends: what isn't committed of it is ABORTED,
//    whenever it comes. The client goes on with n+1 in the next epoch.
//  * If n+1 is BUSY (kResourceExhausted, reason BUSY), nothing is decided, and
//    the client repeats it. If n+2 was admitted early, it is BUSY as well. No
//    change is admitted early until n+1 is committed.
//  * Resume starts a new epoch, too; calls of older ones are refused with
//    FAILED_PRECONDITION, reason TAKEN_OVER.
//
// Thread-compatible: the session's lock guards it. It calls no callback, but
// adds it to `*notices`. The caller runs the notices after it has released the
// lock (Tell).
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
      kRun,     // now
      kRepeat,  // it repeats a committed change, and gets its `reply`
      kRefuse,  // with `why`
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
  // Withdraw.
  // Errors in the decision: kFailedPrecondition, reasons TAKEN_OVER and
  // OUT_OF_ORDER; kAborted, reasons EPOCH_ENDED and OUT_OF_ORDER;
  // kDeadlineExceeded; kResourceExhausted, reason BUSY; kDataLoss if the change
  // was committed and its reply is no longer kept.
  uint64_t Arrive(ChangeId change, absl::Time now, Caller caller,
                  Notices* notices);

  // Has a read wait until change `number` is committed: it runs then. Returns
  // an id for Withdraw. Errors in the decision: kFailedPrecondition, kAborted,
  // kDeadlineExceeded.
  uint64_t AwaitNumber(int64_t number, absl::Time now, Caller caller,
                       Notices* notices);

  // Removes a waiter, whose callback is then never called. Returns false if
  // that is too late: the change runs, or its callback is about to run.
  bool Withdraw(uint64_t waiter);

  // Admits the next change early if `change` runs. Requires: `change` waits for
  // no more memory.
  void AdmitNextEarly(const ChangeId& change, Notices* notices);

  // Ends the running change. Commit requires that it has taken effect. The
  // reply counts as `reply_bytes` while it is kept.
  void Commit(Reply reply, int64_t reply_bytes, absl::Time now,
              Notices* notices);
  // Fail returns the status of the failed call: `why`, or TAKEN_OVER if another
  // epoch has begun, because the client would take that epoch for its next one.
  absl::Status Fail(const absl::Status& why, absl::Time now, Notices* notices);

  // Starts a new epoch and returns it.
  int64_t Resume(Notices* notices);
  // Tells `settled` to run once no change does that had begun before: number()
  // then stays until the epoch that Resume returned changes it.
  void AwaitSettled(Decided settled, Notices* notices);

  // Refuses calls that have waited too long, and drops replies that the client
  // hasn't acknowledged in time. Call it regularly.
  void Expire(absl::Time now, Notices* notices);
  // Refuses all waiting and all later calls with `why`.
  void Close(const absl::Status& why, Notices* notices);

  // The number of the last committed change; 0 before the first.
  int64_t number() const { return number_; }
  int64_t epoch() const { return epoch_; }
  int64_t reply_bytes() const { return reply_bytes_; }

 private:
  struct Waiter {
    uint64_t id;
    absl::Time since;
    Caller caller;
    bool is_early = false;
  };
  // One change, and the calls that want its reply.
  struct Pending {
    int64_t epoch;
    std::string call_id;
    std::vector<Waiter> waiters;
  };
  struct Committed {
    std::string call_id;
    Reply reply;  // null once it is no longer kept
    int64_t bytes;
    absl::Time since;
  };

  // Returns what a change is refused with, OK if it is to run or to wait.
  absl::Status Check(const ChangeId& change) const;
  absl::Status CheckEpoch(int64_t epoch) const;
  absl::Status TooFar(int64_t number) const;
  void Acknowledge(int64_t number);
  // Runs the next change, if it is there, and tells readers of its number.
  void Advance(Notices* notices);
  void TellEarlyAdmission(Notices* notices);
  Pending EndRunning(absl::Time now);
  // Makes what ran one that hasn't come yet, but for its repeats.
  void PutBack(Pending change, const absl::Status& why, Notices* notices);
  void RefuseWaiting(const absl::Status& why, Notices* notices);
  absl::Status Missing() const;
  absl::Status EpochEnded() const;

  int64_t number_ = 0;
  int64_t epoch_ = 1;
  // The first epoch since the session was taken over last.
  int64_t first_epoch_ = 1;
  int64_t acknowledged_ = 0;
  uint64_t last_waiter_ = 0;
  std::string last_failure_;
  // When the last change ended: those who wait do so for the next one since.
  absl::Time stalled_since_ = absl::InfinitePast();
  // Change number_ + 1 and who waits for its reply beside who runs it.
  std::optional<Pending> running_;
  bool next_is_early_ = false;
  bool runs_alone_ = false;
  std::map<int64_t, Pending> waiting_;
  std::map<int64_t, Committed> replies_;
  int64_t reply_bytes_ = 0;
  std::vector<std::pair<int64_t, Waiter>> readers_;
  std::vector<Decided> resuming_;
  // Why nobody is let in any more; OK until Close.
  absl::Status closed_;
};

// Returns whether `status` is a refusal for now: reason BUSY.
bool IsBusy(const absl::Status& status);

// Calls all callbacks of `notices`. Requires: no lock is held.
void Tell(const ChangeOrder::Notices& notices);

}  // namespace convgrad

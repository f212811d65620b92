// Which change of a session runs next, and what the repeat of one is answered:
// each change takes effect exactly once, in the order of the numbers that its
// client gave. Knows nothing of what a change does.
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

// How a client names one change. Value type.
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
//  * Once n+1 says that it won't wait for anything else, n+2 may prepare
//    itself for its turn. No other does: who is prepared holds what a change
//    before it could lack.
//  * If n+1 fails, its epoch ends: what isn't committed of it is ABORTED,
//    whenever it comes. The client goes on with n+1 in the next epoch.
//  * If n+1 is BUSY (kResourceExhausted, reason BUSY), it is as if it hadn't
//    come yet, and its client repeats it. So is n+2 if it was prepared; until
//    n+1 is committed none is.
//  * Resume starts a new epoch, too; calls of older ones are refused with
//    FAILED_PRECONDITION, reason TAKEN_OVER.
//
// Thread-compatible: the session's lock guards it. So nothing is called from
// here; what is to be told is added to `*notices`, for the caller to tell once
// no lock is held.
class ChangeOrder {
 public:
  static constexpr int64_t kWindow = 64;
  static constexpr absl::Duration kMissingTimeout = absl::Seconds(10);
  static constexpr absl::Duration kReplyLifetime = absl::Minutes(10);

  // The answer of a committed change.
  using Reply = std::shared_ptr<const void>;
  // What becomes of a call.
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

  // Who waits, and until when.
  struct Caller {
    absl::Time deadline;
    Decided decided;
    // Tells, at most once, that the change may prepare itself; maybe too late,
    // when it was decided meanwhile. Null if it won't prepare itself.
    std::function<void()> prepare = nullptr;
  };

  // Takes a change that has come. After the deadline it doesn't wait any more.
  // If it is to run, Commit or Fail follows. Returns an id for Withdraw.
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

  // Removes who waits, so that it is never told. Returns false if that is too
  // late: it runs, or it is being told.
  bool Withdraw(uint64_t waiter);

  // Has the next change prepare itself, if `change` runs. To be called once it
  // won't wait for memory any more.
  void LetNextPrepare(const ChangeId& change, Notices* notices);

  // Ends the change that runs. Commit requires that it has taken effect. The
  // reply counts as `reply_bytes` while it is kept.
  void Commit(Reply reply, int64_t reply_bytes, absl::Time now,
              Notices* notices);
  // Fail returns what its own call is to be told: `why`, but TAKEN_OVER if
  // another epoch has begun, or its client would take that one for its next.
  absl::Status Fail(const absl::Status& why, absl::Time now, Notices* notices);

  // Starts a new epoch and returns it.
  int64_t Resume(Notices* notices);
  // Tells `settled` to run once no change does that had begun before: number()
  // then stays until the epoch that Resume returned changes it.
  void AwaitSettled(Decided settled, Notices* notices);

  // Refuses those who have waited too long, and drops replies that nobody has
  // acknowledged in time. To be called regularly.
  void Expire(absl::Time now, Notices* notices);
  // Refuses everybody who waits, and who comes later, with `why`.
  void Close(const absl::Status& why, Notices* notices);

  // Of the last committed change; 0 before the first.
  int64_t number() const { return number_; }
  int64_t epoch() const { return epoch_; }
  bool is_running() const { return running_.has_value(); }
  // Replies that are kept.
  int64_t replies() const { return static_cast<int64_t>(replies_.size()); }
  int64_t reply_bytes() const { return reply_bytes_; }

 private:
  struct Waiter {
    uint64_t id;
    absl::Time since;
    Caller caller;
    bool is_prepared = false;
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
  void PrepareNext(Notices* notices);
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
  bool next_may_prepare_ = false;
  bool runs_alone_ = false;
  std::map<int64_t, Pending> waiting_;
  std::map<int64_t, Committed> replies_;
  int64_t reply_bytes_ = 0;
  std::vector<std::pair<int64_t, Waiter>> readers_;
  std::vector<Decided> resuming_;
  // Why nobody is let in any more; OK until Close.
  absl::Status closed_;
};

// Returns whether nothing has happened for want of something for now.
bool IsBusy(const absl::Status& status);

// Tells everybody. To be called with no lock held.
void Tell(const ChangeOrder::Notices& notices);

}  // namespace convgrad

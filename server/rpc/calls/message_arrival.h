// When a call of one message may go on: both its turn and its message have to
// be there, in whatever order they come.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "backends/core/mutex.h"
#include "server/sessions/change_order.h"

namespace convgrad {

// `MessageArrival` holds the state of a call's message and of its turn, and
// says after each event what the call has to do. Thread-safe: the turn, the
// grant of memory and gRPC's reads come on different threads.
//
// | state    | the message                   | event          | next state |
// |----------|-------------------------------|----------------|----------------|
// | kUnread  | nothing was asked for         | Ask, TakeTurn  | kAsked | |
// kAsked   | memory or the read is asked   | StartComing    | kComing        |
// |          | for                           | Probe          | kProbing | | |
// | End            | kEnded, kUnread| | kComing  | gRPC reads it | Probe |
// kProbing       | |          |                               | End, GiveUp |
// kEnded         | | kProbing | the read failed, and gRPC     | End | kEnded |
// |          | asks whether the client is    |                | | |          |
// still there                   |                |                | | kEnded |
// it is here, or won't come     |                |                |
//
// Only kComing may be given up from outside. In kAsked and kProbing the call is
// about to ask gRPC for something, which it mustn't do after the call's end.
class MessageArrival {
 public:
  enum class Next {
    kNothing,     // wait for what comes next
    kAskMemory,   // ask for the memory of the message
    kProceed,     // go on: turn and message are both there
    kCancelWait,  // leave those who wait for memory
    kWithdraw,    // the client has gone: leave those who wait for their turn
  };

  // The call may ask before its turn. kAskMemory or kNothing.
  Next Ask();
  // The turn has come, or the call was refused. kAskMemory, kProceed or
  // kNothing; kNothing also says that GiveUp has to follow.
  Next TakeTurn(ChangeOrder::Decision decision);
  // The memory was granted.
  void TakeMemory();
  // gRPC has been asked to read. Does nothing if the read has ended meanwhile.
  void StartComing();
  // The read has failed, and the call asks whether its client is still there.
  void Probe();
  // The message is here (OK), or why it won't come. kProceed, kWithdraw or
  // kNothing.
  Next End(const absl::Status& status);
  // Gives up what is waited for if the call was refused meanwhile.
  // `stop_waiting` returns whether the call's client was waited for, and is not
  // any more; it is called with a lock held. kProceed, kCancelWait or kNothing.
  Next GiveUp(const std::function<bool()>& stop_waiting);

  // Returns whether the call runs and has its memory, so that it waits for
  // nothing but its client.
  bool has_all_but_message() const;
  // What the call goes on with. Requires: kProceed was returned.
  ChangeOrder::Decision decision() const;
  absl::Status message_status() const;

 private:
  enum class State { kUnread, kAsked, kComing, kProbing, kEnded };

  bool Runs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return decision_ && decision_->ok() && **decision_ == nullptr;
  }

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kUnread;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool has_memory_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<ChangeOrder::Decision> decision_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

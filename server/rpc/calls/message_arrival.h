// `MessageArrival` decides when a call of one message goes on: after its turn
// and its message have both come. They may come in either order.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>

#include "absl/status/status.h"
#include "backends/core/mutex.h"
#include "server/sessions/change_order.h"

namespace convgrad {

// The state machine of a MessageCall. kRows defines all of it.
namespace arrival {

// The state of the message.
enum class State {
  kUnread,   // nothing is asked for
  kAsking,   // the budget is asked for the message's memory
  kGranted,  // the memory is there; gRPC is about to be asked to read
  kComing,   // gRPC reads
  kProbing,  // the read failed; gRPC is asked whether the client is there
  kEnded,    // the message is here, or won't come
};

// The state of the call's turn.
enum class Turn {
  kAwaited,
  kRuns,
  kRefused,  // or the call repeats another one, whose reply it gets
};

enum class Event {
  kPrepare,     // the call may ask for its message before its turn
  kTurn,        // the turn has come, or the call was refused
  kMemory,      // the memory was granted
  kReading,     // gRPC was asked to read
  kReadFailed,  // gRPC has no message; the client may still be there
  kCame,        // the message is here
  kFailed,      // there is no message, or no memory for it
  kGone,        // there is none because the client left or was too late
  kGiveUp,      // the call checks whether it was refused meanwhile
  kStopped,     // it was refused, and no longer waits for gRPC's read
};

// The next action of the call.
enum class Next {
  kNothing,
  kAskMemory,   // ask for the memory of the message
  kRead,        // have gRPC read, then tell kReading
  kProbe,       // ask gRPC whether the client is still there
  kProceed,     // go on: turn and message have both ended
  kCancelWait,  // leave those who wait for memory
  kWithdraw,    // leave those who wait for their turn: the client has gone
};

// A set of an enum's values.
template <typename T>
class OneOf {
 public:
  constexpr OneOf(std::initializer_list<T> values) {
    for (T value : values) bits_ |= 1U << static_cast<unsigned>(value);
  }
  constexpr bool has(T value) const {
    return (bits_ >> static_cast<unsigned>(value) & 1U) != 0;
  }

 private:
  unsigned bits_ = 0;
};

// In one of `states`, with one of `turns`, on one of `events`, the message
// enters `enters` and the call does `next`.
struct Row {
  OneOf<State> states;
  OneOf<Turn> turns;
  OneOf<Event> events;
  State enters;
  Next next;
};

using enum State;
using enum Turn;
using enum Event;
using enum Next;

inline constexpr OneOf<Turn> kAnyTurn = {kAwaited, kRuns, kRefused};

// Any other event changes nothing.
// clang-format off
inline constexpr Row kRows[] = {
    // The message waits for its turn, or for leave to come before it.
    {{kUnread}, {kAwaited}, {kPrepare}, kAsking, kAskMemory},
    {{kUnread}, {kRuns}, {kTurn}, kAsking, kAskMemory},
    {{kUnread}, {kRefused}, {kTurn}, kEnded, kProceed},
    // A call that found no memory before its turn asks again in its turn.
    {{kAsking}, kAnyTurn, {kMemory}, kGranted, kRead},
    {{kAsking}, {kAwaited}, {kFailed}, kUnread, kNothing},
    {{kAsking}, {kAwaited}, {kGone}, kUnread, kWithdraw},
    {{kAsking}, {kRuns, kRefused}, {kFailed, kGone}, kUnread, kProceed},
    {{kAsking}, {kRefused}, {kGiveUp}, kAsking, kCancelWait},
    // Only kComing is given up from outside: in the other states the call is
    // about to ask gRPC for something, which it mustn't do after its end.
    {{kGranted}, kAnyTurn, {kReading}, kComing, kNothing},
    {{kGranted, kComing}, kAnyTurn, {kReadFailed}, kProbing, kProbe},
    {{kComing}, {kRefused}, {kStopped}, kEnded, kProceed},
    {{kGranted, kComing, kProbing}, {kAwaited}, {kCame, kFailed}, kEnded, kNothing},
    {{kGranted, kComing, kProbing}, {kAwaited}, {kGone}, kEnded, kWithdraw},
    {{kGranted, kComing, kProbing}, {kRuns, kRefused}, {kCame, kFailed, kGone}, kEnded, kProceed},
    {{kEnded}, {kRuns, kRefused}, {kTurn}, kEnded, kProceed},
};
// clang-format on

}  // namespace arrival

// Holds the states of a call's message and of its turn. Thread-safe: the turn,
// the grant of memory and gRPC's reads come on different threads.
class MessageArrival {
 public:
  // Returns what the one row that fits says; kNothing if none does.
  arrival::Next On(arrival::Event event);
  // As On, of kTurn: the turn is `decision`.
  arrival::Next TakeTurn(ChangeOrder::Decision decision);
  // As On: of kCame if `status` is OK, of kGone for kCancelled and
  // kDeadlineExceeded, of kFailed for other errors.
  arrival::Next End(const absl::Status& status);
  // As On, of kGiveUp. While gRPC reads for a call that was refused, it asks
  // `stop_waiting`, with a lock held: the event is kStopped if that returns
  // true.
  arrival::Next GiveUp(const std::function<bool()>& stop_waiting);

  // Returns whether the call runs and has its memory, so that it waits for
  // nothing but its client.
  bool has_all_but_message() const;
  // What the call goes on with. Requires: kProceed was returned.
  ChangeOrder::Decision decision() const;
  absl::Status message_status() const;

 private:
  arrival::Next Enter(arrival::Event event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  arrival::State state_ ABSL_GUARDED_BY(mutex_) = arrival::State::kUnread;
  arrival::Turn turn_ ABSL_GUARDED_BY(mutex_) = arrival::Turn::kAwaited;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::optional<ChangeOrder::Decision> decision_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

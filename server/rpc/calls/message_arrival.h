// `MessageArrival` decides when a MessageCall goes on: after both its turn and
// its message have come, in either order.
#pragma once

#include <functional>
#include <initializer_list>

#include "backends/core/mutex.h"

namespace convgrad {

// The state machine of a MessageCall. kRows defines all its transitions.
namespace arrival {

// The state of the message.
enum class State {
  kUnread,   // The call has asked for nothing.
  kAsking,   // The call has asked the budget for the message's memory.
  kGranted,  // The memory is granted; the call is about to start a read.
  kComing,   // gRPC reads.
  kProbing,  // The read failed; the call probes whether the client is there.
  kEnded,    // The message has come, or won't come.
};

// The state of the call's turn.
enum class Turn {
  kAwaited,
  kRuns,
  kRefused,  // Or the call repeats another one and gets its reply.
};

enum class Event {
  kEarlyAdmission,  // The call may ask for memory and message before its turn.
  kTurn,            // The turn has come.
  kRefusal,         // The turn won't come; see kRefused.
  kMemory,          // The budget has granted the memory.
  kReading,         // The call has started gRPC's read.
  kReadFailed,      // gRPC has no message; the client may still be there.
  kCame,            // The message has come.
  kFailed,          // There is no message, or no memory for it.
  kGone,            // There is no message, because the client left or was late.
  kGiveUp,          // The call checks whether its turn has become kRefused.
  kStopped,         // The turn is kRefused; the call ends without gRPC's read.
};

// The next action of the call.
enum class Next {
  kNothing,
  kAskMemory,   // Ask for the memory of the message.
  kRead,        // Start gRPC's read, then report kReading.
  kProbe,       // Ask gRPC whether the client is still there.
  kProceed,     // Continue: turn and message have both ended.
  kCancelWait,  // Leave the queue for memory.
  kWithdraw,    // Leave the session's queue: the client has left.
};

// A set of values of an enum.
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

// Other events change nothing.
// clang-format off
inline constexpr Row kRows[] = {
    // The message waits for the turn, or for early admission.
    {{kUnread}, {kAwaited}, {kEarlyAdmission}, kAsking, kAskMemory},
    {{kUnread}, {kRuns}, {kTurn}, kAsking, kAskMemory},
    {{kUnread}, {kRefused}, {kRefusal}, kEnded, kProceed},
    // A call that got no memory in early admission asks again when its turn
    // comes.
    {{kAsking}, kAnyTurn, {kMemory}, kGranted, kRead},
    {{kAsking}, {kAwaited}, {kFailed}, kUnread, kNothing},
    {{kAsking}, {kAwaited}, {kGone}, kUnread, kWithdraw},
    {{kAsking}, {kRuns, kRefused}, {kFailed, kGone}, kUnread, kProceed},
    {{kAsking}, {kRefused}, {kGiveUp}, kAsking, kCancelWait},
    // The server gives up only a message in kComing. In the other states the
    // call is about to ask gRPC for something, and must not do so after its
    // end.
    {{kGranted}, kAnyTurn, {kReading}, kComing, kNothing},
    {{kGranted, kComing}, kAnyTurn, {kReadFailed}, kProbing, kProbe},
    {{kComing}, {kRefused}, {kStopped}, kEnded, kProceed},
    {{kGranted, kComing, kProbing}, {kAwaited}, {kCame, kFailed}, kEnded, kNothing},
    {{kGranted, kComing, kProbing}, {kAwaited}, {kGone}, kEnded, kWithdraw},
    {{kGranted, kComing, kProbing}, {kRuns, kRefused}, {kCame, kFailed, kGone}, kEnded, kProceed},
    {{kEnded}, {kRuns, kRefused}, {kTurn, kRefusal}, kEnded, kProceed},
};
// clang-format on

}  // namespace arrival

// `MessageArrival` holds the states of a call's message and of its turn.
// Thread-safe, because the turn, the grant of memory and gRPC's reads come on
// different threads.
class MessageArrival {
 public:
  // Applies the first row that matches `event` and returns its `next`; kNothing
  // if no row matches. kTurn and kRefusal decide the turn first. kGiveUp needs
  // `stop_waiting`: if gRPC reads for a call that was refused, this function
  // calls it with its lock held. If that returns true, the event is kStopped.
  arrival::Next On(arrival::Event event,
                   const std::function<bool()>& stop_waiting = nullptr);

  // Returns whether the call runs and has its memory, so that it waits only for
  // its client.
  bool has_all_but_message() const;

 private:
  mutable Mutex mutex_;
  arrival::State state_ ABSL_GUARDED_BY(mutex_) = arrival::State::kUnread;
  arrival::Turn turn_ ABSL_GUARDED_BY(mutex_) = arrival::Turn::kAwaited;
};

}  // namespace convgrad

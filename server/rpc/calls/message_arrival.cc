#include "server/rpc/calls/message_arrival.h"

namespace convgrad {

using arrival::Event;
using arrival::Next;
using arrival::State;
using arrival::Turn;

Next MessageArrival::On(Event event,
                        const std::function<bool()>& stop_waiting) {
  MutexLock lock(&mutex_);
  if (event == Event::kTurn) turn_ = Turn::kRuns;
  if (event == Event::kRefusal) turn_ = Turn::kRefused;
  const bool may_stop = event == Event::kGiveUp && turn_ == Turn::kRefused &&
                        state_ == State::kComing;
  if (may_stop && stop_waiting()) event = Event::kStopped;
  for (const arrival::Row& row : arrival::kRows) {
    if (!row.states.has(state_) || !row.turns.has(turn_) ||
        !row.events.has(event)) {
      continue;
    }
    state_ = row.enters;
    return row.next;
  }
  return Next::kNothing;
}

bool MessageArrival::has_all_but_message() const {
  MutexLock lock(&mutex_);
  return turn_ == Turn::kRuns && state_ >= State::kGranted;
}

}  // namespace convgrad

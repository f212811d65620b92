#include "server/rpc/calls/message_arrival.h"

#include <utility>

namespace convgrad {

using arrival::Event;
using arrival::Next;
using arrival::State;
using arrival::Turn;

Next MessageArrival::Enter(Event event) {
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

Next MessageArrival::On(Event event) {
  MutexLock lock(&mutex_);
  return Enter(event);
}

Next MessageArrival::TakeTurn(ChangeOrder::Decision decision) {
  MutexLock lock(&mutex_);
  turn_ = decision.runs() ? Turn::kRuns : Turn::kRefused;
  decision_ = std::move(decision);
  return Enter(Event::kTurn);
}

Next MessageArrival::End(const absl::Status& status) {
  MutexLock lock(&mutex_);
  status_ = status;
  if (status.ok()) return Enter(Event::kCame);
  const bool is_gone =
      absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  return Enter(is_gone ? Event::kGone : Event::kFailed);
}

Next MessageArrival::GiveUp(const std::function<bool()>& stop_waiting) {
  MutexLock lock(&mutex_);
  const bool stopped =
      turn_ == Turn::kRefused && state_ == State::kComing && stop_waiting();
  return Enter(stopped ? Event::kStopped : Event::kGiveUp);
}

bool MessageArrival::has_all_but_message() const {
  MutexLock lock(&mutex_);
  return turn_ == Turn::kRuns && state_ >= State::kGranted;
}

ChangeOrder::Decision MessageArrival::decision() const {
  MutexLock lock(&mutex_);
  return *decision_;
}

absl::Status MessageArrival::message_status() const {
  MutexLock lock(&mutex_);
  return status_;
}

}  // namespace convgrad

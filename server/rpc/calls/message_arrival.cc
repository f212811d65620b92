#include "server/rpc/calls/message_arrival.h"

#include <utility>

namespace convgrad {

MessageArrival::Next MessageArrival::Ask() {
  MutexLock lock(&mutex_);
  if (decision_) return Next::kNothing;
  state_ = State::kAsked;
  return Next::kAskMemory;
}

MessageArrival::Next MessageArrival::TakeTurn(ChangeOrder::Decision decision) {
  MutexLock lock(&mutex_);
  decision_ = std::move(decision);
  if (state_ == State::kEnded) return Next::kProceed;
  if (state_ != State::kUnread) return Next::kNothing;
  if (!Runs()) return Next::kProceed;
  state_ = State::kAsked;
  return Next::kAskMemory;
}

void MessageArrival::TakeMemory() {
  MutexLock lock(&mutex_);
  has_memory_ = true;
}

void MessageArrival::StartComing() {
  MutexLock lock(&mutex_);
  if (state_ == State::kAsked) state_ = State::kComing;
}

void MessageArrival::Probe() {
  MutexLock lock(&mutex_);
  state_ = State::kProbing;
}

MessageArrival::Next MessageArrival::End(const absl::Status& status) {
  MutexLock lock(&mutex_);
  // Without memory the call asks again in its turn.
  state_ = has_memory_ || decision_ ? State::kEnded : State::kUnread;
  status_ = status;
  if (decision_) return Next::kProceed;
  // What else fails does so in the call's turn.
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)
             ? Next::kWithdraw
             : Next::kNothing;
}

MessageArrival::Next MessageArrival::GiveUp(
    const std::function<bool()>& stop_waiting) {
  MutexLock lock(&mutex_);
  if (!decision_ || Runs()) return Next::kNothing;
  if (state_ != State::kComing || !stop_waiting()) return Next::kCancelWait;
  state_ = State::kEnded;
  return Next::kProceed;
}

bool MessageArrival::has_all_but_message() const {
  MutexLock lock(&mutex_);
  return has_memory_ && Runs();
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

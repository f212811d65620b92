// `DurableSession` answers as a server with one durable session does, and
// forgets what isn't on its disk when the test wants it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/mutex.h"
#include "convgrad/v1/session.pb.h"
#include "tests/client/cpp/scripted_sessions.h"

namespace convgrad {

// The session's state is the list of the names that its changes had.
// Thread-safe.
class DurableSession {
 public:
  static constexpr int64_t kWindow = 8;

  Answer Handle(const Attempt& attempt) {
    MutexLock lock(&mutex_);
    const int64_t life = life_;
    if (attempt.after >= 0) return HandleRead(attempt.after);
    while (true) {
      if (attempt.epoch < first_epoch_) return Old();
      if (attempt.epoch != epoch_) {
        return With(grpc::StatusCode::ABORTED, "EPOCH_ENDED");
      }
      if (const auto reply = replies_.find(attempt.sequence);
          reply != replies_.end() && reply->second == attempt.call_id) {
        return attempt.sequence <= unanswered_ ? Answer(kNone) : With();
      }
      if (attempt.sequence <= number() ||
          attempt.sequence > number() + kWindow) {
        return With(grpc::StatusCode::FAILED_PRECONDITION, "OUT_OF_ORDER");
      }
      if (attempt.sequence == number() + 1) break;
      changed_.Wait(&mutex_);
      if (life != life_) return kNone;
    }
    return Commit(attempt);
  }

  // Forgets what isn't on disk.
  void Restart() {
    MutexLock lock(&mutex_);
    ++life_;
    is_restored_ = true;
    first_epoch_ = epoch_ + 1;
    history_.resize(disk_);
    replies_.erase(replies_.upper_bound(disk_), replies_.end());
    changed_.NotifyAll();
  }
  absl::StatusOr<v1::SessionResponse> Resume() {
    MutexLock lock(&mutex_);
    v1::SessionResponse answer;
    first_epoch_ = ++epoch_;
    is_restored_ = false;
    answer.set_epoch(epoch_);
    answer.set_number(number());
    answer.set_durable_number(disk_);
    changed_.NotifyAll();
    return answer;
  }
  absl::StatusOr<int64_t> Save() {
    MutexLock lock(&mutex_);
    ++saves_;
    if (!can_save_) return absl::InternalError("no space");
    disk_ = number();
    return disk_;
  }
  void SetCanSave(bool can_save) {
    MutexLock lock(&mutex_);
    can_save_ = can_save;
  }
  // Answers to changes up to this number are lost.
  void LoseAnswersTo(int64_t sequence) {
    MutexLock lock(&mutex_);
    unanswered_ = sequence;
  }
  void Refuse(const std::string& name) {
    MutexLock lock(&mutex_);
    refused_ = name;
  }
  // Refuses a change that the server may take later.
  void RefuseForNow(const std::string& name) {
    MutexLock lock(&mutex_);
    refused_for_now_ = name;
  }
  int saves() {
    MutexLock lock(&mutex_);
    return saves_;
  }
  std::vector<std::string> history() {
    MutexLock lock(&mutex_);
    return history_;
  }
  void AwaitNumber(int64_t wanted) {
    MutexLock lock(&mutex_);
    while (number() < wanted) changed_.Wait(&mutex_);
  }

 private:
  const Answer kNone = {grpc::StatusCode::UNAVAILABLE};

  int64_t number() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::ssize(history_);
  }
  Answer With(grpc::StatusCode code = grpc::StatusCode::OK,
              const std::string& reason = "")
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {.code = code,
            .reason = reason,
            .number = number(),
            .durable_number = disk_};
  }
  Answer Old() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return With(grpc::StatusCode::FAILED_PRECONDITION,
                is_restored_ ? "RESTORED" : "TAKEN_OVER");
  }
  Answer HandleRead(int64_t after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t life = life_;
    while (number() < after) {
      if (is_restored_) {
        return With(grpc::StatusCode::FAILED_PRECONDITION, "RESTORED");
      }
      if (after > number() + kWindow) {
        return With(grpc::StatusCode::FAILED_PRECONDITION, "OUT_OF_ORDER");
      }
      changed_.Wait(&mutex_);
      if (life != life_) return kNone;
    }
    return With();
  }
  Answer Commit(const Attempt& attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (attempt.is_void || attempt.name == refused_) {
      ++epoch_;
      changed_.NotifyAll();
      return With(grpc::StatusCode::INVALID_ARGUMENT, "OUT_OF_RANGE");
    }
    if (attempt.name == refused_for_now_) {
      ++epoch_;
      changed_.NotifyAll();
      return With(grpc::StatusCode::UNAVAILABLE, "BUSY");
    }
    history_.push_back(attempt.name);
    replies_[attempt.sequence] = attempt.call_id;
    changed_.NotifyAll();
    return attempt.sequence <= unanswered_ ? Answer(kNone) : With();
  }

  Mutex mutex_;
  CondVar changed_;
  int64_t life_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t first_epoch_ ABSL_GUARDED_BY(mutex_) = 1;
  bool is_restored_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> history_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::string> replies_ ABSL_GUARDED_BY(mutex_);
  int64_t disk_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string refused_ ABSL_GUARDED_BY(mutex_) = "bad";
  std::string refused_for_now_ ABSL_GUARDED_BY(mutex_);
  int saves_ ABSL_GUARDED_BY(mutex_) = 0;
  bool can_save_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace convgrad

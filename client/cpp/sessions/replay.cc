#include "client/cpp/sessions/replay.h"

#include <utility>

namespace convgrad {
namespace {

// Memory of one change beside its messages.
constexpr int64_t kEntryBytes = 1024;

int64_t SizeOf(const Replay::Kept& kept) {
  return kEntryBytes + kept.change.bytes;
}

}  // namespace

void Replay::Add(int64_t sequence, Kept kept) {
  if (sequence <= durable_number_ || kept.change.send == nullptr) return;
  bytes_ += SizeOf(kept);
  kept_[sequence] = std::move(kept);
}

std::map<int64_t, Replay::Kept> Replay::TakeAfter(int64_t number) {
  std::map<int64_t, Kept> taken;
  while (newest() > number) {
    const auto last = std::prev(kept_.end());
    bytes_ -= SizeOf(last->second);
    taken.insert(kept_.extract(last));
  }
  return taken;
}

void Replay::NoteDurable(int64_t number) {
  if (number <= durable_number_) return;
  durable_number_ = number;
  while (!kept_.empty() && kept_.begin()->first <= number) {
    bytes_ -= SizeOf(kept_.begin()->second);
    kept_.erase(kept_.begin());
  }
}

void Replay::BeginSaving() {
  is_saving_ = true;
  saving_from_ = durable_number_;
}

void Replay::EndSaving(const absl::Status& status) {
  is_saving_ = false;
  const bool is_passing =
      absl::IsAborted(status) || absl::IsCancelled(status) ||
      absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status);
  const bool helps_not = !is_passing && durable_number_ == saving_from_ &&
                         bytes_ - limit_ > limit_;
  if (bytes_ <= limit_ || !(absl::IsInternal(status) || helps_not)) return;
  kept_.clear();
  bytes_ = 0;
}

}  // namespace convgrad

// These functions of `ChangeOrder` move the order of a session to a snapshot
// and back.
#include <utility>

#include "server/sessions/change_order.h"

namespace convgrad {

std::vector<ChangeOrder::Unacknowledged> ChangeOrder::unacknowledged() const {
  std::vector<Unacknowledged> changes;
  changes.reserve(replies_.size());
  for (const auto& [number, committed] : replies_) {
    changes.push_back(
        {number, committed.call_id, committed.reply, committed.bytes});
  }
  return changes;
}

void ChangeOrder::Restore(int64_t number, Epochs epochs,
                          std::vector<Unacknowledged> changes, absl::Time now) {
  number_ = number;
  epochs_ = std::move(epochs);
  is_restored_ = true;
  acknowledged_ = changes.empty() ? number : changes.front().number - 1;
  replies_.clear();
  reply_bytes_ = 0;
  for (Unacknowledged& change : changes) {
    reply_bytes_ += change.reply_bytes;
    replies_[change.number] = {std::move(change.call_id),
                               std::move(change.reply), change.reply_bytes,
                               now};
  }
}

}  // namespace convgrad

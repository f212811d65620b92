// `PriorityRoundRobin` chooses between the two priorities in the queue for
// memory and in the queue for workers.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace convgrad {

enum class Priority { kBatch, kInteractive };
inline constexpr int kPriorities = 2;
inline constexpr Priority kAllPriorities[] = {Priority::kBatch,
                                              Priority::kInteractive};

// Returns the index of `priority` in an array of kPriorities elements.
constexpr size_t IndexOf(Priority priority) {
  return static_cast<size_t>(priority);
}

// Returns "batch" or "interactive".
constexpr absl::string_view NameOf(Priority priority) {
  return priority == Priority::kBatch ? "batch" : "interactive";
}

// While both priorities wait, kInteractiveWeight interactive dequeues precede
// each batch dequeue. So interactive calls are served first, and batch calls
// still progress.
//
// Thread-compatible.
class PriorityRoundRobin {
 public:
  static constexpr int64_t kInteractiveWeight = 3;

  // Returns the priority to dequeue. Requires: at least one of both waits.
  Priority Next(bool batch_waits, bool interactive_waits) const {
    if (!batch_waits) return Priority::kInteractive;
    if (!interactive_waits) return Priority::kBatch;
    return taken_ < kInteractiveWeight ? Priority::kInteractive
                                       : Priority::kBatch;
  }

  // Records a dequeue of `priority`.
  void Take(Priority priority, bool batch_waits) {
    const bool passed = priority == Priority::kInteractive && batch_waits;
    taken_ = passed ? taken_ + 1 : 0;
  }

 private:
  // The number of successive interactive dequeues while batch waited.
  int64_t taken_ = 0;
};

}  // namespace convgrad

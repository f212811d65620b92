// What waits in two queues, of calls that want memory and of jobs that want a
// worker, and whose turn it is there.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace convgrad {

enum class Priority { kBatch, kInteractive };
inline constexpr int kPriorities = 2;
inline constexpr Priority kAllPriorities[] = {Priority::kBatch,
                                              Priority::kInteractive};

// Returns "batch" or "interactive".
constexpr absl::string_view NameOf(Priority priority) {
  return priority == Priority::kBatch ? "batch" : "interactive";
}

// While both wait, interactive has kInteractiveTurns turns for each of batch:
// it goes first, and batch isn't starved.
//
// Thread-compatible.
class PriorityTurns {
 public:
  static constexpr int64_t kInteractiveTurns = 3;

  // Returns whose turn it is. Requires: one of both waits.
  Priority Next(bool batch_waits, bool interactive_waits) const {
    if (!batch_waits) return Priority::kInteractive;
    if (!interactive_waits) return Priority::kBatch;
    return taken_ < kInteractiveTurns ? Priority::kInteractive
                                      : Priority::kBatch;
  }

  // `priority` has had its turn.
  void Take(Priority priority, bool batch_waits) {
    const bool passed = priority == Priority::kInteractive && batch_waits;
    taken_ = passed ? taken_ + 1 : 0;
  }

 private:
  // By interactive, in a row, while batch waited.
  int64_t taken_ = 0;
};

}  // namespace convgrad

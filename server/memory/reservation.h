// A share of the memory budget, as a value.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace convgrad {

class MemoryBudget;
struct ClientAccount;

// Bytes taken from a budget; given back when destroyed. Move-only; mustn't
// outlive its budget. Thread-compatible.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  int64_t bytes() const { return bytes_; }
  // Gives back all but `bytes`. Requires: 0 <= bytes <= this->bytes().
  void ShrinkTo(int64_t bytes);
  // Moves `bytes` of these into a reservation of their own. Requires: as
  // ShrinkTo.
  Reservation Split(int64_t bytes);
  // As Split, for bytes that outlive their call: they don't count as the
  // client's any more, whose calls wait for one another.
  Reservation SplitToKeep(int64_t bytes);
  // Takes `bytes` more now, ahead of those that wait. Requires: these were
  // taken from a budget.
  // Errors: kResourceExhausted, reason BUSY if there is no room now, or if the
  // client would have more than its share.
  absl::Status TryGrow(int64_t bytes);

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget* budget, int64_t bytes, ClientAccount* account)
      : budget_(budget), bytes_(bytes), account_(account) {}

  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
  // Whose bytes these are; null if no client's, or if there are none.
  ClientAccount* account_ = nullptr;
};

}  // namespace convgrad

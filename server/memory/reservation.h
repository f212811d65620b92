// `Reservation` holds bytes of the memory budget, as a value.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace convgrad {

class MemoryBudget;
struct ClientAccount;

// The destructor returns the bytes to the budget. Move-only; it must not
// outlive its budget. Thread-compatible.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  int64_t bytes() const { return bytes_; }
  // Returns all but `bytes` to the budget. Requires: 0 <= bytes <=
  // this->bytes().
  void ShrinkTo(int64_t bytes);
  // Moves `bytes` of this reservation into a new one. Requires: as ShrinkTo.
  Reservation Split(int64_t bytes);
  // As Split, for bytes that outlive their call. They no longer count in the
  // client's share.
  Reservation SplitToKeep(int64_t bytes);
  // Takes `bytes` more now, before all waiters. Requires: this was taken from a
  // budget.
  // Errors: kResourceExhausted, reason BUSY if there is no room now, or if the
  // client would exceed its share.
  absl::Status TryGrow(int64_t bytes);

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget* budget, int64_t bytes, ClientAccount* account)
      : budget_(budget), bytes_(bytes), account_(account) {}

  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
  // The client's account; null for no client, or without bytes.
  ClientAccount* account_ = nullptr;
};

}  // namespace convgrad

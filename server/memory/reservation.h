// A share of the memory budget, as a value.
#pragma once

#include <cstdint>

namespace convgrad {

class MemoryBudget;

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
  // Takes over the bytes of `other`, of the same budget.
  void Merge(Reservation other);

 private:
  friend class MemoryBudget;
  Reservation(MemoryBudget* budget, int64_t bytes)
      : budget_(budget), bytes_(bytes) {}

  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace convgrad

// Where the bytes of an operation's tensors are before it runs, and where its
// results shall be afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/core/data_type.h"
#include "backends/core/operand_gather.h"

namespace convgrad {

// The bytes of one tensor. Value type. There are three kinds:
//  * in a message, scattered: only operands. Several may share one;
//  * in memory that stays where it is as long as `owner` lives: a shared
//    region's, or what the server keeps;
//  * nowhere yet: a result that the answer carries. Also a tensor that the
//    operation doesn't have.
struct TensorPlace {
  std::shared_ptr<ScatteredBytes> message;
  std::shared_ptr<const void> owner;
  std::byte* data = nullptr;
  // Of an operand that never changes: a number that no other one has. 0: its
  // bytes may change while `owner` lives, or nobody knows.
  uint64_t constant_id = 0;
  // Of a result in memory that can be used: f32 numbers, as many as it has,
  // which are added to it once it is there. Kept by `owner`.
  const float* addend = nullptr;
  // Of a result: whether the server keeps it, so that no client gets it.
  bool is_kept = false;
  // Whether a client maps the memory, too, and may write to it at any time.
  bool is_shared = false;

  bool in_memory() const { return owner != nullptr; }
  // Returns whether a backend may use the bytes where they are (RunBuffers).
  bool is_usable() const {
    return in_memory() && reinterpret_cast<uintptr_t>(data) % 64 == 0;
  }
  // Returns whether a backend may read them there as an operand of `dtype`.
  // Indices in shared memory are copied before a backend checks them: a client
  // can't change the copy between the check and the use.
  bool is_readable_as(DataType dtype) const {
    return is_usable() && !(is_shared && dtype == DataType::kI64);
  }
};

// Adds the addend's numbers [begin, end) to the result at `place`.
inline void AddAddend(const TensorPlace& place, int64_t begin, int64_t end) {
  auto* sum = reinterpret_cast<float*>(place.data);
  for (int64_t i = begin; i < end; ++i) sum[i] = place.addend[i] + sum[i];
}

// Those of one operation, by position in OperandUses() and ResultUses().
struct TensorPlaces {
  std::vector<TensorPlace> operands;
  std::vector<TensorPlace> results;
};

}  // namespace convgrad

// `TensorPlace` says where the bytes of a tensor are: those of an operand
// before the operation runs, and those of a result afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/core/data_type.h"
#include "backends/core/scattered_bytes.h"

namespace convgrad {

// The place of one tensor. Value type. There are three kinds:
// * In a message, scattered. Only for operands; several operands may share a
//   message.
// * At an address that is valid as long as `owner` exists: in a shared region,
//   or in memory that a session keeps.
// * No place yet: a result that the answer carries, or a tensor that the
//   operation doesn't have.
struct TensorPlace {
  std::shared_ptr<ScatteredBytes> message;
  std::shared_ptr<const void> owner;
  std::byte* data = nullptr;
  // The number of an operand that never changes, unique in the process. 0: the
  // bytes may change while `owner` exists.
  uint64_t constant_id = 0;
  // For a usable result in memory: f32 numbers, as many as the result has, that
  // are added to the complete result. `owner` owns them.
  const float* addend = nullptr;
  // For a result: whether a session keeps it and no client receives it.
  bool is_kept = false;
  // Whether a client maps the memory and may write to it at any time.
  bool is_shared = false;

  bool in_memory() const { return owner != nullptr; }
  // Returns whether a backend may use the bytes in place (RunBuffers).
  bool is_usable() const {
    return in_memory() && reinterpret_cast<uintptr_t>(data) % 64 == 0;
  }
  // Returns whether a backend may read an operand of `dtype` in place. Indices
  // in shared memory are copied before a backend checks them, because a client
  // could change them between the check and the use.
  bool is_readable_as(DataType dtype) const {
    return is_usable() && !(is_shared && dtype == DataType::kI64);
  }
};

// Adds the numbers [begin, end) of the addend to the result at `place`.
inline void AddAddend(const TensorPlace& place, int64_t begin, int64_t end) {
  auto* sum = reinterpret_cast<float*>(place.data);
  for (int64_t i = begin; i < end; ++i) sum[i] = place.addend[i] + sum[i];
}

// The places of one operation, by position in OperandUses() and ResultUses().
struct TensorPlaces {
  std::vector<TensorPlace> operands;
  std::vector<TensorPlace> results;
};

}  // namespace convgrad

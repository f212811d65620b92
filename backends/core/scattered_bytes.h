// `ScatteredBytes` are bytes in several pieces, as a network message delivers
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace convgrad {

class ScatteredBytes {
 public:
  virtual ~ScatteredBytes() = default;

  virtual int64_t size() const = 0;
  // Copies the bytes at `offset`. Requires: they exist and aren't released.
  // Thread-safe.
  virtual void CopyRange(int64_t offset, absl::Span<std::byte> to) const = 0;
  // Frees the pieces that end at or before `offset`. CopyRange must not read
  // them afterwards.
  virtual void Release(int64_t offset) = 0;
};

}  // namespace convgrad

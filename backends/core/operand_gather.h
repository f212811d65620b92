// `OperandGather` copies an operand whose bytes are in several pieces, as a
// network message delivers them, and may reorder it during the copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace convgrad {

// Bytes in several pieces, for example those of a received message.
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

// Copies in parts that several threads may share. Immutable; thread-safe.
class OperandGather {
 public:
  // Reads as ScatteredBytes::CopyRange does.
  using ReadBytes =
      absl::FunctionRef<void(int64_t offset, absl::Span<std::byte> to)>;

  virtual ~OperandGather() = default;

  virtual int64_t destination_bytes() const = 0;

  // Returns the number of independent parts, about 256 KiB each.
  virtual int64_t part_count() const = 0;
  // Returns the offset of the part in the source; for part_count() the source's
  // end.
  virtual int64_t SourceOffset(int64_t part) const = 0;

  // Runs the parts [begin, end). Parts write disjoint bytes and together all of
  // the destination, which needs no alignment.
  virtual void Run(ReadBytes read, void* destination, int64_t begin,
                   int64_t end) const = 0;
};

}  // namespace convgrad

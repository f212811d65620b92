// How an operand is copied whose bytes lie scattered, as they came over a
// network: what is copied anyway may be brought to another form on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace convgrad {

// Bytes in several pieces, for example those of one received message.
class ScatteredBytes {
 public:
  virtual ~ScatteredBytes() = default;

  virtual int64_t size() const = 0;
  // Copies the bytes from `offset` on. Requires: they are there. Several
  // threads may do so at once.
  virtual void CopyRange(int64_t offset, absl::Span<std::byte> to) const = 0;
  // Lets go of the pieces that end at `offset` or before; what was in them
  // can't be copied any more.
  virtual void Release(int64_t offset) = 0;
};

// A copy in parts that a team of threads may share. Immutable; thread-safe.
class OperandGather {
 public:
  // As ScatteredBytes::CopyRange.
  using ReadBytes =
      absl::FunctionRef<void(int64_t offset, absl::Span<std::byte> to)>;

  virtual ~OperandGather() = default;

  virtual int64_t destination_bytes() const = 0;

  // Returns the number of independent parts, of some 256 KiB each.
  virtual int64_t part_count() const = 0;
  // Returns where the part begins in the source; part_count() ends it.
  virtual int64_t SourceOffset(int64_t part) const = 0;

  // Runs the parts [begin, end). Parts write disjoint bytes, together all of
  // the destination, which needs no alignment.
  virtual void Run(ReadBytes read, void* destination, int64_t begin,
                   int64_t end) const = 0;
};

}  // namespace convgrad

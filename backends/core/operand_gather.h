// How an operand is copied whose bytes lie scattered, as they came over a
// network: what is copied anyway may be brought to another form on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace convgrad {

// A copy in parts that a team of threads may share. Immutable; thread-safe.
class OperandGather {
 public:
  // Copies the source's bytes from `offset` on. Several threads may call it at
  // once.
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

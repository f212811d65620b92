// `ScatteredReorder` reorders a tensor whose bytes are in several pieces, as a
// network message delivers them. It reorders during the copy that is necessary
// anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "backends/core/operand_gather.h"
#include "backends/core/physical_layout.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// Prepared once and run repeatedly in parts, which several threads may share.
// Immutable; copies share the prepared state. Thread-safe.
class ScatteredReorder final : public OperandGather {
 public:
  // Plans the reorder in slabs that fit a core's cache. A slab is a run of
  // whole images, or a range of an image's outermost axis.
  // Returns nullopt if the tensor can't be cut like that: it is empty or not
  // dense, its images aren't outermost in both layouts, or a slab would be too
  // large.
  // Requires: as Reorder::Make.
  static std::optional<ScatteredReorder> Make(const PhysicalLayout& from,
                                              DataType from_dtype,
                                              const PhysicalLayout& to,
                                              DataType to_dtype);

  int64_t destination_bytes() const override;
  int64_t part_count() const override;
  int64_t SourceOffset(int64_t part) const override;
  void Run(ReadBytes read, void* destination, int64_t begin,
           int64_t end) const override;

 private:
  struct Slabs;

  explicit ScatteredReorder(std::shared_ptr<const Slabs> slabs)
      : slabs_(std::move(slabs)) {}

  std::shared_ptr<const Slabs> slabs_;
};

}  // namespace convgrad

// A reorder of a tensor whose bytes lie scattered, as they came over a network:
// what is copied anyway is brought to its layout on the way.
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

// Prepared once and run often, in parts that a team of threads may share.
// Immutable; copies share what was prepared. Thread-safe.
class ScatteredReorder final : public OperandGather {
 public:
  // Plans the reorder in slabs that a core's cache holds: runs of the source
  // that are whole images, or ranges of an image's outermost axis.
  // Returns nullopt where a tensor can't be cut so: it is empty or not dense,
  // its images aren't outermost in both layouts, or a slab would be too large.
  // Requires: as Reorder::Make.
  static std::optional<ScatteredReorder> Make(const PhysicalLayout& from,
                                              DataType from_dtype,
                                              const PhysicalLayout& to,
                                              DataType to_dtype);

  // Up to the end of the last image, pad lanes included.
  int64_t source_bytes() const;
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

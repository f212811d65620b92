// The tensors of one operation that lie in shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/region_places.h"
#include "server/memory/region_registry.h"

namespace convgrad {

// A tensor's bytes, within a region that stays mapped as long as this. Value
// type.
struct RegionTensor {
  std::shared_ptr<const Region> region;
  std::byte* data = nullptr;
  int64_t size = 0;

  // True if a backend may use the bytes where they are.
  bool IsAligned() const { return reinterpret_cast<uintptr_t>(data) % 64 == 0; }
};

// nullopt: not in a region. Value type.
struct RegionTensors {
  // Indexed by Operand.
  std::array<std::optional<RegionTensor>, kOperandCount> operands;
  // In the order of operation.results.
  std::vector<std::optional<RegionTensor>> results;

  // Returns the sum of the operands' sizes.
  int64_t OperandBytes() const;
};

// Returns the bytes of `places`, as DecodeOperation gave them. A null
// `registry` has no regions.
// Errors: kUnimplemented for any region if `registry` is null; kNotFound,
// reason NOT_FOUND, for an id that isn't registered, be it never, no more or
// not here; kInvalidArgument, reason OUT_OF_RANGE, for bytes beyond the
// region's end.
absl::StatusOr<RegionTensors> FindRegions(const RegionPlaces& places,
                                          const RegionRegistry* registry);

}  // namespace convgrad

// `RegionPlaces` lists the tensors of an operation whose bytes are in shared
// memory regions instead of the message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/core/convolution/conv_operation.h"

namespace convgrad {

inline constexpr size_t kRegionIdBytes = 16;

// A tensor's bytes in a region. Value type.
struct RegionRange {
  std::string region_id;  // kRegionIdBytes long
  int64_t byte_offset = 0;
  int64_t byte_length = 0;

  friend bool operator==(const RegionRange&, const RegionRange&) = default;
};

// The places of all tensors. nullopt: inline, or no such tensor. Value type.
struct RegionPlaces {
  // Indexed by Operand.
  std::array<std::optional<RegionRange>, kOperandCount> operands;
  // In the order of operation.results; empty if all are inline.
  std::vector<std::optional<RegionRange>> results;
};

}  // namespace convgrad

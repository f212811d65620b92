// `NextCount` continues a count that a client may have put.
#pragma once

#include <cstdint>
#include <limits>

namespace convgrad {

// Returns `count` + 1; the largest number stays, because a sum beyond it is
// undefined.
constexpr int64_t NextCount(int64_t count) {
  return count < std::numeric_limits<int64_t>::max() ? count + 1 : count;
}

}  // namespace convgrad

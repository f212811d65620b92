// A number of bytes as people write it on a command line.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace convgrad {

// The type of flags that take bytes: "8GiB" is 8 * 2^30, "4096" and "-1" are
// numbers. Units: B, KiB, MiB, GiB, TiB.
struct ByteCount {
  explicit ByteCount(int64_t the_bytes = 0) : bytes(the_bytes) {}

  int64_t bytes;
};

// Absl's interface to types of flags. Returns false, and what was expected, if
// `text` is no such number or one beyond 2^63 - 1.
bool AbslParseFlag(absl::string_view text, ByteCount* result,
                   std::string* error);
// Returns the number without a unit.
std::string AbslUnparseFlag(ByteCount count);

}  // namespace convgrad

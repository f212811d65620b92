// A number of bytes as people write it on a command line.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace convgrad {

// Reads a number of bytes: "8GiB" is 8 * 2^30, "4096" and "-1" are numbers.
// Units: B, KiB, MiB, GiB, TiB. Returns false and leaves `*bytes` if `text` is
// no such number, or one beyond 2^63 - 1.
bool ParseByteCount(absl::string_view text, int64_t* bytes);

}  // namespace convgrad

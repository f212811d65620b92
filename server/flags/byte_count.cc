#include "server/flags/byte_count.h"

#include <array>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace convgrad {
namespace {

// "B" last: the others end with it.
constexpr std::array<std::pair<absl::string_view, int>, 5> kUnits = {
    {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"B", 0}}};

}  // namespace

bool AbslParseFlag(absl::string_view text, ByteCount* result,
                   std::string* error) {
  int shift = 0;
  absl::string_view digits = text;
  for (const auto& [unit, bits] : kUnits) {
    if (!absl::ConsumeSuffix(&digits, unit)) continue;
    shift = bits;
    break;
  }
  const int64_t most = std::numeric_limits<int64_t>::max() >> shift;
  int64_t number;
  if (!absl::SimpleAtoi(digits, &number) || number > most || number < -most) {
    *error = absl::StrCat(
        "found '", text,
        "', expected bytes, e.g. 8589934592 or 8GiB (KiB, MiB, GiB or TiB)");
    return false;
  }
  result->bytes = number * (int64_t{1} << shift);
  return true;
}

std::string AbslUnparseFlag(ByteCount count) {
  return absl::StrCat(count.bytes);
}

}  // namespace convgrad

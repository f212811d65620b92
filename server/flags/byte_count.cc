#include "server/flags/byte_count.h"

#include <array>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace convgrad {
namespace {

// "B" last: the others end with it.
constexpr std::array<std::pair<absl::string_view, int>, 5> kUnits = {
    {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"B", 0}}};

}  // namespace

bool ParseByteCount(absl::string_view text, int64_t* bytes) {
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (!absl::ConsumeSuffix(&text, unit)) continue;
    shift = bits;
    break;
  }
  const int64_t most = std::numeric_limits<int64_t>::max() >> shift;
  int64_t number;
  if (!absl::SimpleAtoi(text, &number) || number > most || number < -most) {
    return false;
  }
  *bytes = number * (int64_t{1} << shift);
  return true;
}

}  // namespace convgrad

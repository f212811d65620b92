#include "server/scheduling/plan_origin.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// The first line is this and a version.
constexpr absl::string_view kMark = "# convgrad-plan";
constexpr absl::string_view kFirstLine = "# convgrad-plan 1";

// What the lines after it begin with, in their order.
constexpr std::array<absl::string_view, 5> kKeys = {
    "# cpu:", "# cpu name:", "# isa:", "# threads:", "# library:"};

absl::Status Malformed(absl::string_view line, absl::string_view expected) {
  return InvalidField(Reason::kMalformed, "plan file",
                      absl::StrCat("\"", line, "\""), expected);
}

}  // namespace

bool IsSameKind(const PlanOrigin& a, const PlanOrigin& b) {
  return a.cpu == b.cpu && a.isa == b.isa && a.threads == b.threads &&
         a.library == b.library;
}

std::string Describe(const PlanOrigin& origin) {
  return absl::StrCat(origin.cpu, ", ", origin.isa, ", ", origin.threads,
                      origin.threads == 1 ? " thread, " : " threads, ",
                      origin.library);
}

std::string ToHeader(const PlanOrigin& origin) {
  return absl::StrCat(kFirstLine, "\n", kKeys[0], " ", origin.cpu, "\n",
                      kKeys[1], " ", origin.cpu_name, "\n", kKeys[2], " ",
                      origin.isa, "\n", kKeys[3], " ", origin.threads, "\n",
                      kKeys[4], " ", origin.library, "\n");
}

absl::StatusOr<std::optional<PlanOrigin>> ParseHeader(absl::string_view text) {
  std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  const absl::string_view first = absl::StripAsciiWhitespace(parts.first);
  if (!absl::StartsWith(first, kMark)) return std::nullopt;
  if (first != kFirstLine) return Malformed(first, kFirstLine);
  std::vector<std::string> values;
  for (absl::string_view key : kKeys) {
    parts = absl::StrSplit(parts.second, absl::MaxSplits('\n', 1));
    absl::string_view line = absl::StripAsciiWhitespace(parts.first);
    if (!absl::ConsumePrefix(&line, key) || line.empty()) {
      return Malformed(parts.first, absl::StrCat(key, " and a value"));
    }
    values.emplace_back(absl::StripAsciiWhitespace(line));
  }
  PlanOrigin origin = {values[0], values[1], values[2], 0, values[4]};
  if (!absl::SimpleAtoi(values[3], &origin.threads) || origin.threads < 1) {
    return Malformed(absl::StrCat(kKeys[3], " ", values[3]),
                     "a number of threads from 1 up");
  }
  return origin;
}

}  // namespace convgrad

// `AllFlags` returns the table of flags, which has one row for each flag of the
// server. The command line, --help, the checks of Config::Validate and the
// table in server/flags/README.md follow it.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/flags/config.h"

namespace convgrad {

// The field that a flag sets. Its default is the flag's default. int64_t values
// accept units of bytes, e.g. 8GiB.
using FlagField = std::variant<bool Config::*, int Config::*, int64_t Config::*,
                               double Config::*, absl::Duration Config::*,
                               std::string Config::*>;

// The smallest and the largest valid value. Units: milliseconds for durations.
struct FlagRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

struct Flag {
  absl::string_view name;
  FlagField field;
  absl::string_view help;
  // The range of the value after WithDefaults.
  FlagRange range = {};
};

// Returns the flags in the order of the help text.
absl::Span<const Flag> AllFlags();

// Parses `text` and sets the flag's field.
// Errors: kInvalidArgument naming flag, found and expected.
absl::Status SetFlag(const Flag& flag, const std::string& text, Config* config);

// Checks the range of the flag's value.
// Errors: kInvalidArgument if it is outside.
absl::Status CheckFlag(const Flag& flag, const Config& config);

// Returns the valid values as a text for users, such as "1 to 1024" or "at
// least 1ms"; "" for a flag that is a text.
std::string ValuesOf(const Flag& flag);

// Returns the flag's default in the form of the command line.
std::string DefaultOf(const Flag& flag);

}  // namespace convgrad

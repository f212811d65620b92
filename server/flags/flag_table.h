// Holds one row for each flag of the server. The command line, --help, the
// checks of Config::Validate and the table in server/flags/README.md follow it.
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

// The field that a flag sets. Its default value is the flag's default. Numbers
// of 64 bits take units of bytes, e.g. 8GiB.
using FlagField = std::variant<bool Config::*, int Config::*, int64_t Config::*,
                               double Config::*, absl::Duration Config::*,
                               std::string Config::*>;

// The least and the greatest valid value. Units: milliseconds for durations.
struct FlagRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

struct Flag {
  absl::string_view name;
  FlagField field;
  absl::string_view help;
  // Of the value that WithDefaults leaves.
  FlagRange range = {};
};

// Returns the flags in the order of the help text.
absl::Span<const Flag> AllFlags();

// Sets the flag's field to the value that `text` says.
// Errors: kInvalidArgument naming flag, found and expected.
absl::Status SetFlag(const Flag& flag, const std::string& text, Config* config);

// Errors: kInvalidArgument if the flag's value is outside its range.
absl::Status CheckFlag(const Flag& flag, const Config& config);

// Returns which values are valid, for people: "1 to 1024", "at least 1ms"; of a
// text "".
std::string ValuesOf(const Flag& flag);

// Returns the flag's default as it may be written on the command line.
std::string DefaultOf(const Flag& flag);

}  // namespace convgrad

// These functions parse, check and print the values of flags.
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backends/core/field_errors.h"
#include "server/flags/flag_table.h"

namespace convgrad {
namespace {

absl::Status Refuse(const Flag& flag, absl::string_view found,
                    absl::string_view expected) {
  return OutOfRange(absl::StrCat("--", flag.name), found, expected);
}

// Removes the unit at the end of `*text` and returns its power of two.
int ConsumeUnit(absl::string_view* text) {
  // "B" is last, because the other units end with it.
  for (const auto& [unit, bits] : {std::pair("KiB", 10),
                                   {"MiB", 20},
                                   {"GiB", 30},
                                   {"TiB", 40},
                                   {"B", 0}}) {
    if (absl::ConsumeSuffix(text, unit)) return bits;
  }
  return 0;
}

// Each function sets `*value` and returns "", or returns the text of the
// expected form.
absl::string_view Read(absl::string_view text, bool* value) {
  return absl::SimpleAtob(text, value) ? "" : "true or false";
}
absl::string_view Read(absl::string_view text, int* value) {
  return absl::SimpleAtoi(text, value) ? "" : "a whole number";
}
absl::string_view Read(absl::string_view text, int64_t* value) {
  const int bits = ConsumeUnit(&text);
  const int64_t most = std::numeric_limits<int64_t>::max() >> bits;
  if (!absl::SimpleAtoi(text, value) || *value > most || *value < -most) {
    return "a number, e.g. 8589934592 or 8GiB (KiB, MiB, GiB or TiB)";
  }
  *value *= int64_t{1} << bits;
  return "";
}
absl::string_view Read(absl::string_view text, double* value) {
  return absl::SimpleAtod(text, value) ? "" : "a number";
}
absl::string_view Read(absl::string_view text, absl::Duration* value) {
  return absl::ParseDuration(text, value) ? "" : "a time, e.g. 1h30m or 500ms";
}
absl::string_view Read(absl::string_view text, std::string* value) {
  *value = std::string(text);
  return "";
}

template <typename Value>
std::string TextOf(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<Value, absl::Duration>) {
    return absl::FormatDuration(value);
  } else {
    return absl::StrCat(value);
  }
}

template <typename Value>
bool IsWithin(const FlagRange& range, const Value& value) {
  if constexpr (std::is_same_v<Value, absl::Duration>) {
    return value >= absl::Milliseconds(range.least) &&
           (range.most == FlagRange().most ||
            value <= absl::Milliseconds(range.most));
  } else if constexpr (std::is_arithmetic_v<Value>) {
    const auto number = static_cast<double>(value);
    return number >= static_cast<double>(range.least) &&
           number <= static_cast<double>(range.most);
  } else {
    return true;
  }
}

}  // namespace

absl::Status SetFlag(const Flag& flag, const std::string& text,
                     Config* config) {
  const absl::string_view expected = std::visit(
      [&](auto field) { return Read(text, &(config->*field)); }, flag.field);
  if (expected.empty()) return absl::OkStatus();
  return Refuse(flag, absl::StrCat("'", text, "'"), expected);
}

absl::Status CheckFlag(const Flag& flag, const Config& config) {
  return std::visit(
      [&](auto field) {
        if (IsWithin(flag.range, config.*field)) return absl::OkStatus();
        return Refuse(flag, TextOf(config.*field), ValuesOf(flag));
      },
      flag.field);
}

std::string ValuesOf(const Flag& flag) {
  const auto& [least, most] = flag.range;
  if (std::holds_alternative<std::string Config::*>(flag.field)) return "";
  if (std::holds_alternative<bool Config::*>(flag.field)) return "true, false";
  const bool is_time =
      std::holds_alternative<absl::Duration Config::*>(flag.field);
  const auto text = [is_time](int64_t value) {
    return is_time ? TextOf(absl::Milliseconds(value)) : TextOf(value);
  };
  if (most == FlagRange().most) return absl::StrCat("at least ", text(least));
  return absl::StrCat(text(least), " to ", text(most));
}

std::string DefaultOf(const Flag& flag) {
  return std::visit([](auto field) { return TextOf(Config().*field); },
                    flag.field);
}

}  // namespace convgrad

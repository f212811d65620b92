// Reads, checks and prints the values of flags.
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/flags/byte_count.h"
#include "server/flags/flag_table.h"

namespace convgrad {
namespace {

absl::Status Refuse(const Flag& flag, absl::string_view found,
                    absl::string_view expected) {
  return InvalidField(Reason::kOutOfRange, absl::StrCat("--", flag.name), found,
                      expected);
}

// Sets the flag's field. Returns what the flag expects if `text` isn't that,
// else "".
struct Reader {
  const std::string& text;
  Config* config;

  absl::string_view operator()(bool Config::*field) const {
    return absl::SimpleAtob(text, &(config->*field)) ? "" : "true or false";
  }
  absl::string_view operator()(int Config::*field) const {
    return absl::SimpleAtoi(text, &(config->*field)) ? "" : "a whole number";
  }
  absl::string_view operator()(int64_t Config::*field) const {
    return absl::SimpleAtoi(text, &(config->*field)) ? "" : "a whole number";
  }
  absl::string_view operator()(BytesField bytes) const {
    return ParseByteCount(text, &(config->*bytes.field))
               ? ""
               : "bytes, e.g. 8589934592 or 8GiB (KiB, MiB, GiB or TiB)";
  }
  absl::string_view operator()(double Config::*field) const {
    return absl::SimpleAtod(text, &(config->*field)) ? "" : "a number";
  }
  absl::string_view operator()(absl::Duration Config::*field) const {
    return absl::ParseDuration(text, &(config->*field))
               ? ""
               : "a time, e.g. 1h30m, 10s or 500ms";
  }
  absl::string_view operator()(std::string Config::*field) const {
    config->*field = text;
    return "";
  }
};

template <typename Value>
const Value& ValueOf(const Config& config, Value Config::*field) {
  return config.*field;
}
const int64_t& ValueOf(const Config& config, BytesField bytes) {
  return config.*bytes.field;
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
    return value >= absl::Milliseconds(range.least);
  } else if constexpr (std::is_same_v<Value, double>) {
    return value >= static_cast<double>(range.least) &&
           value <= static_cast<double>(range.most);
  } else if constexpr (std::is_integral_v<Value>) {
    return value >= range.least && value <= range.most;
  } else {
    return true;
  }
}

}  // namespace

absl::Status SetFlag(const Flag& flag, const std::string& text,
                     Config* config) {
  const absl::string_view expected =
      std::visit(Reader{text, config}, flag.field);
  if (expected.empty()) return absl::OkStatus();
  return Refuse(flag, absl::StrCat("'", text, "'"), expected);
}

absl::Status CheckFlag(const Flag& flag, const Config& config) {
  return std::visit(
      [&](auto field) {
        const auto& value = ValueOf(config, field);
        if (IsWithin(flag.range, value)) return absl::OkStatus();
        return Refuse(flag, TextOf(value), ValuesOf(flag));
      },
      flag.field);
}

std::string ValuesOf(const Flag& flag) {
  const auto& [least, most] = flag.range;
  if (std::holds_alternative<std::string Config::*>(flag.field)) return "";
  if (std::holds_alternative<bool Config::*>(flag.field)) return "true, false";
  if (std::holds_alternative<absl::Duration Config::*>(flag.field)) {
    return absl::StrCat("at least ",
                        absl::FormatDuration(absl::Milliseconds(least)));
  }
  if (most == FlagRange().most) return absl::StrCat("at least ", least);
  return absl::StrCat(least, " to ", most);
}

std::string DefaultOf(const Flag& flag) {
  return std::visit([](auto field) { return TextOf(ValueOf(Config(), field)); },
                    flag.field);
}

}  // namespace convgrad

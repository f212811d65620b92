#include "client/cpp/command_line/settings/option_values.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/field_errors.h"

namespace convgrad {
namespace {

// Errors: kInvalidArgument if `text` is none of the words of the option's kind.
absl::Status CheckWord(const OptionEntry& option, absl::string_view text) {
  std::vector<absl::string_view> words = absl::StrSplit(option.kind, '|');
  if (absl::c_linear_search(words, text)) return absl::OkStatus();
  const absl::string_view last = words.back();
  words.pop_back();
  return RefuseValue(option, text,
                     absl::StrCat(absl::StrJoin(words, ", "), " or ", last));
}

}  // namespace

absl::Status RefuseValue(const OptionEntry& option, absl::string_view found,
                         absl::string_view expected) {
  return OutOfRange(option.name, absl::StrCat("\"", found, "\""), expected);
}

absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       std::string* value) {
  *value = std::string(text);
  if (!absl::StrContains(option.kind, "|")) return absl::OkStatus();
  return CheckWord(option, text);
}

absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       int64_t* value) {
  if (absl::SimpleAtoi(text, value) && *value >= option.least &&
      *value <= option.most) {
    return absl::OkStatus();
  }
  const bool has_most = option.most < std::numeric_limits<int64_t>::max();
  return RefuseValue(option, text,
                     has_most ? absl::StrCat(option.least, " to ", option.most)
                              : absl::StrCat("at least ", option.least));
}

absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       float* value) {
  if (absl::SimpleAtof(text, value) && *value != 0) return absl::OkStatus();
  return RefuseValue(option, text, "a number other than 0");
}

absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       absl::Duration* value) {
  if (absl::ParseDuration(text, value) && *value > absl::ZeroDuration()) {
    return absl::OkStatus();
  }
  return RefuseValue(option, text, "a time above 0 with a unit, e.g. 10s");
}

absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       Direction* value) {
  *value = text == "forward" ? Direction::kForward : Direction::kBackward;
  return CheckWord(option, text);
}

absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       DataType* value) {
  RETURN_IF_ERROR(CheckWord(option, text));
  *value = *ParseDataType(text);
  return absl::OkStatus();
}

absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       Layout* value) {
  const std::optional<Layout> layout = ParseLayout(text);
  RETURN_IF_ERROR(CheckWord(option, layout ? NameOf(*layout) : text));
  *value = *layout;
  return absl::OkStatus();
}

absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       Result* value) {
  for (Result which : kAllResults) {
    if (NameOf(which) != text) continue;
    *value = which;
    return absl::OkStatus();
  }
  return RefuseValue(
      option, text,
      "output, grad_input, grad_weight, grad_bias or grad_residual");
}

}  // namespace convgrad

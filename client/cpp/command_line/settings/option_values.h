// Parses the values of the tool's options.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/status.h"

namespace convgrad {

struct OptionEntry {
  std::string name;  // with its dashes
  // Accepted values, for help and completions: words separated by |, or a noun
  // such as FILE.
  std::string kind;
  // Smallest and largest accepted number.
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

// Returns kInvalidArgument naming the option.
absl::Status RefuseValue(const OptionEntry& option, absl::string_view found,
                         absl::string_view expected);

// Parse `text` into `*value`. If the option's kind lists words, `text` must be
// one of them. A time must be more than 0.
// Errors: kInvalidArgument naming the option, found and expected.
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       std::string* value);
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       int64_t* value);
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       float* value);
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       absl::Duration* value);
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       Direction* value);
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       DataType* value);
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       Layout* value);
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       Result* value);

template <typename Value>
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       std::optional<Value>* value) {
  return ReadValue(option, text, &value->emplace());
}

// Parses several values separated by commas.
template <typename Value>
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       std::vector<Value>* values) {
  for (absl::string_view part :
       absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    RETURN_IF_ERROR(ReadValue(option, part, &values->emplace_back()));
  }
  return absl::OkStatus();
}

// Parses one value for every result, or RESULT=VALUE,...
template <typename Value>
absl::Status ReadValue(const OptionEntry& option, absl::string_view text,
                       std::array<std::optional<Value>, kResultCount>* values) {
  for (absl::string_view part :
       absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const bool is_for_all = pair.second.empty();
    Result which{};
    if (!is_for_all) RETURN_IF_ERROR(ReadValue(option, pair.first, &which));
    Value value{};
    RETURN_IF_ERROR(ReadValue(option, is_for_all ? part : pair.second, &value));
    if (is_for_all) values->fill(value);
    (*values)[static_cast<size_t>(which)] = value;
  }
  return absl::OkStatus();
}

}  // namespace convgrad

#include "backends/core/program/operators/attribute_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace convgrad {
namespace {

std::string TextOf(bool value) { return value ? "true" : "false"; }
std::string TextOf(int64_t value) { return absl::StrCat(value); }
std::string TextOf(const std::string& value) { return value; }

std::string TextOf(double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  std::string text(digits, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

template <typename T>
std::string TextOf(const std::vector<T>& values) {
  const auto append = [](std::string* out, T value) { *out += TextOf(value); };
  return absl::StrCat("[", absl::StrJoin(values, ", ", append), "]");
}

// Parses a number without a point or an exponent as an integer. An infinite
// number is "inf" or "-inf".
std::optional<AttributeValue> ParseNumber(absl::string_view text) {
  int64_t integer;
  if (absl::SimpleAtoi(text, &integer)) return AttributeValue(integer);
  double number;
  const bool is_floating =
      text.find_first_of(".e") != text.npos || text == "inf" || text == "-inf";
  if (is_floating && absl::SimpleAtod(text, &number)) {
    return AttributeValue(number);
  }
  return std::nullopt;
}

std::optional<AttributeValue> ParseList(absl::string_view inner) {
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  for (absl::string_view part : absl::StrSplit(inner, ',')) {
    const auto number = ParseNumber(absl::StripAsciiWhitespace(part));
    if (!number) return std::nullopt;
    if (const auto* integer = std::get_if<int64_t>(&*number)) {
      integers.push_back(*integer);
    }
    numbers.push_back(NumbersIn(*number).front());
  }
  if (integers.size() == numbers.size()) return AttributeValue(integers);
  return AttributeValue(numbers);
}

bool IsWord(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_islower(c) || c == '_';
  });
}

}  // namespace

std::string ToString(const AttributeValue& value) {
  return std::visit([](const auto& v) { return TextOf(v); }, value);
}

std::optional<AttributeValue> ParseAttribute(absl::string_view text) {
  if (text == "true" || text == "false") return AttributeValue(text == "true");
  if (absl::StartsWith(text, "[") && absl::EndsWith(text, "]")) {
    return ParseList(text.substr(1, text.size() - 2));
  }
  auto number = ParseNumber(text);
  if (number || !IsWord(text)) return number;
  return AttributeValue(std::string(text));
}

}  // namespace convgrad

#include "backends/core/program/operators/attribute_validation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/core/program/operators/attribute_text.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

bool IsAllowedWord(const AttributeSpec& spec, const std::string& word) {
  const std::vector<std::string> words = absl::StrSplit(spec.words, '|');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Returns the numbers of `value`, one or a list; nullopt if it isn't of `kind`.
std::optional<std::vector<double>> NumbersOf(const AttributeValue& value,
                                             AttributeKind kind) {
  const bool is_list =
      kind == AttributeKind::kInts || kind == AttributeKind::kFloats;
  const bool is_floating =
      kind == AttributeKind::kFloat || kind == AttributeKind::kFloats;
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return std::vector<double>{static_cast<double>(*number)};
  }
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value);
      numbers && is_list) {
    return std::vector<double>(numbers->begin(), numbers->end());
  }
  if (!is_floating) return std::nullopt;
  if (const auto* number = std::get_if<double>(&value)) return {{*number}};
  if (const auto* numbers = std::get_if<std::vector<double>>(&value);
      numbers && is_list) {
    return *numbers;
  }
  return std::nullopt;
}

std::string ExpectedOf(const AttributeSpec& spec) {
  constexpr absl::string_view kKinds[] = {"true or false",
                                          "an integer",
                                          "a number",
                                          "",
                                          "an integer or a list of integers",
                                          "a number or a list of numbers"};
  std::string text(kKinds[static_cast<size_t>(spec.kind)]);
  if (std::isfinite(spec.minimum)) {
    absl::StrAppend(&text, " from ", spec.minimum);
  }
  if (std::isfinite(spec.maximum)) {
    absl::StrAppend(&text, " to ", spec.maximum);
  }
  if (spec.words.empty()) return text;
  return absl::StrCat(text, text.empty() ? "" : ", or ",
                      absl::StrReplaceAll(spec.words, {{"|", " or "}}));
}

bool IsAllowed(const AttributeSpec& spec, const AttributeValue& value) {
  if (const auto* word = std::get_if<std::string>(&value)) {
    return IsAllowedWord(spec, *word);
  }
  if (spec.kind == AttributeKind::kWord) return false;
  if (std::holds_alternative<bool>(value)) {
    return spec.kind == AttributeKind::kBool;
  }
  if (spec.kind == AttributeKind::kBool) return false;
  const auto numbers = NumbersOf(value, spec.kind);
  if (!numbers || numbers->empty()) return false;
  return std::all_of(numbers->begin(), numbers->end(), [&](double number) {
    return std::isfinite(number) && number >= spec.minimum &&
           number <= spec.maximum;
  });
}

}  // namespace

absl::Status CheckAttributes(const ProgramStep& step, const std::string& path) {
  const OperatorSpec& spec = SpecOf(step.op);
  for (const auto& [name, value] : step.attributes) {
    const auto known =
        std::find_if(spec.attributes.begin(), spec.attributes.end(),
                     [&wanted = name](const AttributeSpec& attribute) {
                       return attribute.name == wanted;
                     });
    if (known == spec.attributes.end()) {
      return InvalidField(
          Reason::kNotFound, path, name,
          absl::StrCat("an attribute of ", spec.name, ": ",
                       absl::StrJoin(spec.attributes, ", ",
                                     [](std::string* out, const auto& each) {
                                       absl::StrAppend(out, each.name);
                                     })));
    }
    if (IsAllowed(*known, value)) continue;
    return InvalidField(Reason::kOutOfRange, absl::StrCat(path, ".", name),
                        ToString(value), ExpectedOf(*known));
  }
  for (const AttributeSpec& attribute : spec.attributes) {
    if (!attribute.required || HasAttribute(step, attribute.name)) continue;
    return InvalidField(Reason::kMissing,
                        absl::StrCat(path, ".", attribute.name), "none",
                        ExpectedOf(attribute));
  }
  return spec.check_attributes == nullptr ? absl::OkStatus()
                                          : spec.check_attributes(step, path);
}

}  // namespace convgrad

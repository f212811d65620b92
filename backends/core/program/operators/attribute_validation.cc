#include "backends/core/program/operators/attribute_validation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/attribute_text.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

bool IsAllowedWord(const AttributeSpec& spec, const std::string& word) {
  const std::vector<absl::string_view> words = absl::StrSplit(spec.words, '|');
  return absl::c_linear_search(words, word);
}

// Returns whether an attribute of `kind` may have a value of this type. An
// integer may stand for a floating number, and one number for a list.
bool IsOfKind(const AttributeValue& value, AttributeKind kind) {
  const bool is_list =
      kind == AttributeKind::kInts || kind == AttributeKind::kFloats;
  const bool is_floating =
      kind == AttributeKind::kFloat || kind == AttributeKind::kFloats;
  if (std::holds_alternative<bool>(value)) return kind == AttributeKind::kBool;
  if (std::holds_alternative<int64_t>(value)) {
    return kind == AttributeKind::kInt || is_list || is_floating;
  }
  if (std::holds_alternative<double>(value)) return is_floating;
  if (std::holds_alternative<std::vector<int64_t>>(value)) return is_list;
  return kind == AttributeKind::kFloats;
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
  if (std::isfinite(spec.maximum)) absl::StrAppend(&text, " to ", spec.maximum);
  if (spec.words.empty()) return text;
  return absl::StrCat(text, text.empty() ? "" : ", or ",
                      absl::StrReplaceAll(spec.words, {{"|", " or "}}));
}

bool IsAllowed(const AttributeSpec& spec, const AttributeValue& value) {
  if (const auto* word = std::get_if<std::string>(&value)) {
    return IsAllowedWord(spec, *word);
  }
  if (!IsOfKind(value, spec.kind)) return false;
  if (spec.kind == AttributeKind::kBool) return true;
  const std::vector<double> numbers = NumbersIn(value);
  return !numbers.empty() && absl::c_all_of(numbers, [&](double number) {
    const bool is_number =
        std::isfinite(number) || (spec.may_be_infinite && !std::isnan(number));
    return is_number && number >= spec.minimum && number <= spec.maximum;
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
    return OutOfRange(absl::StrCat(path, ".", name), ToString(value),
                      ExpectedOf(*known));
  }
  for (const AttributeSpec& attribute : spec.attributes) {
    if (!attribute.required || HasAttribute(step, attribute.name)) continue;
    return Missing(absl::StrCat(path, ".", attribute.name), "none",
                   ExpectedOf(attribute));
  }
  return spec.check_attributes == nullptr ? absl::OkStatus()
                                          : spec.check_attributes(step, path);
}

}  // namespace convgrad

// Writes and reads an attribute's value as text: true, 3, 0.5, same, [2, 2],
// [0.5, 1.0].
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "backends/core/program/operators/program_step.h"

namespace convgrad {

// Returns the shortest text that ParseAttribute reads back as equal.
std::string ToString(const AttributeValue& value);

// Returns nullopt for an invalid text. A list that contains a floating number
// is a list of floating numbers.
std::optional<AttributeValue> ParseAttribute(absl::string_view text);

}  // namespace convgrad

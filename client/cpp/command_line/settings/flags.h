// The words that the command line's flags take, for checks, help and
// completions.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace convgrad {

// Value type.
struct FlagEntry {
  absl::string_view name;
  // The words that it takes, with blanks between them; kFiles, kSwitch, or ""
  // where there is nothing to choose from.
  absl::string_view values = "";
};
inline constexpr absl::string_view kFiles = "FILE";
inline constexpr absl::string_view kSwitch = "BOOL";

// In the order of the help text.
absl::Span<const FlagEntry> AllFlags();

// Returns the words that the flag takes. Requires: a flag that has some.
std::vector<absl::string_view> WordsOf(absl::string_view flag);

// Returns them for a sentence: "f32, bf16 or f16". Requires: likewise.
std::string AlternativesOf(absl::string_view flag);

}  // namespace convgrad

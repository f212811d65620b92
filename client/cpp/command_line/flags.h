// The command line's flags, and what help and completions tell of them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

ABSL_DECLARE_FLAG(std::string, server);
ABSL_DECLARE_FLAG(std::string, ca);
ABSL_DECLARE_FLAG(std::string, cert);
ABSL_DECLARE_FLAG(std::string, key);
ABSL_DECLARE_FLAG(std::string, token);
ABSL_DECLARE_FLAG(std::string, region);
ABSL_DECLARE_FLAG(absl::Duration, timeout);
ABSL_DECLARE_FLAG(std::string, traceparent);
ABSL_DECLARE_FLAG(std::string, priority);
ABSL_DECLARE_FLAG(std::string, backend);
ABSL_DECLARE_FLAG(bool, self_check);
ABSL_DECLARE_FLAG(bool, count_nonfinite);
ABSL_DECLARE_FLAG(bool, deterministic);
ABSL_DECLARE_FLAG(int64_t, slice_items);
ABSL_DECLARE_FLAG(std::string, dtype);
ABSL_DECLARE_FLAG(std::string, layout);
ABSL_DECLARE_FLAG(std::string, weight_layout);
ABSL_DECLARE_FLAG(std::string, result_dtype);
ABSL_DECLARE_FLAG(std::string, result_layout);
ABSL_DECLARE_FLAG(std::string, scale);
ABSL_DECLARE_FLAG(std::string, gradients);
ABSL_DECLARE_FLAG(uint64_t, seed);
ABSL_DECLARE_FLAG(bool, integers);
ABSL_DECLARE_FLAG(std::string, operands);
ABSL_DECLARE_FLAG(std::string, input);
ABSL_DECLARE_FLAG(std::string, weight);
ABSL_DECLARE_FLAG(std::string, bias);
ABSL_DECLARE_FLAG(std::string, residual);
ABSL_DECLARE_FLAG(std::string, grad_output);
ABSL_DECLARE_FLAG(std::string, output);
ABSL_DECLARE_FLAG(std::string, out);
ABSL_DECLARE_FLAG(bool, check);
ABSL_DECLARE_FLAG(std::string, direction);
ABSL_DECLARE_FLAG(int, repeat);
ABSL_DECLARE_FLAG(int, warmup);
ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(std::string, metrics);
ABSL_DECLARE_FLAG(absl::Duration, interval);
ABSL_DECLARE_FLAG(int, count);

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

// Returns the flag's help text.
std::string HelpOf(const FlagEntry& entry);

// Returns kInvalidArgument: the flag and the value that it was given.
absl::Status BadFlag(absl::string_view flag, absl::string_view found,
                     absl::string_view expected);

// Returns OK if `value` is one of the words that the flag takes, else BadFlag.
// Requires: a flag that has words to choose from.
absl::Status CheckWord(absl::string_view flag, absl::string_view value);

// Returns one line per flag, for the help text.
std::string FlagHelp();

}  // namespace convgrad

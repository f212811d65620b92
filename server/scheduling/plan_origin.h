// What a plan file was timed on, which its first lines say:
//
//   # convgrad-plan 1
//   # cpu: AuthenticAMD family 25 model 17
//   # cpu name: AMD EPYC 9R14 96-Core Processor
//   # isa: avx512_core_bf16
//   # threads: 2
//   # library: onednn 3.2.0
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// Value type. No field has a line break, none is empty.
struct PlanOrigin {
  // The CPU as its maker numbers it.
  std::string cpu = "unknown";
  // The CPU's name, for people: hypervisors change it.
  std::string cpu_name = "unknown";
  // The instruction set that the library uses, which may be less than what the
  // CPU has.
  std::string isa = "none";
  // Of a worker. Range: >= 1.
  int threads = 1;
  // Name and version.
  std::string library = "none";
};

// Returns whether what is fastest at `a` is so at `b`, as far as these tell:
// everything but the name is the same.
bool IsSameKind(const PlanOrigin& a, const PlanOrigin& b);

// Returns it in one line, without the name.
std::string Describe(const PlanOrigin& origin);

// Returns the first lines of a plan file.
std::string ToHeader(const PlanOrigin& origin);

// Returns what the first lines of a plan file say, nullopt if the file doesn't
// begin with such lines.
// Errors: kInvalidArgument naming a line that isn't as ToHeader writes it.
absl::StatusOr<std::optional<PlanOrigin>> ParseHeader(absl::string_view text);

}  // namespace convgrad

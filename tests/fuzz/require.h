// `Require` ends a fuzzer's process if an invariant doesn't hold.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"

namespace convgrad::fuzz {

// Ends the process unless `holds`; libFuzzer keeps the input.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "doesn't hold: %s\n", what);
  std::abort();
}

// Ends the process unless a decoder may refuse with `status`.
inline void RequireRefusal(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kInvalidArgument ||
      status.code() == absl::StatusCode::kUnimplemented) {
    return;
  }
  std::fprintf(stderr, "refused with %s\n", status.ToString().c_str());
  std::abort();
}

}  // namespace convgrad::fuzz

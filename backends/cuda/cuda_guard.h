// Converts cuDNN's errors and exceptions to absl::Status.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "backends/core/status.h"

namespace convgrad::cuda {

// Returns the status for cuDNN's error `message`.
inline absl::Status Failure(absl::StatusCode code, absl::string_view what,
                            absl::string_view message) {
  const Reason reason = code == absl::StatusCode::kUnimplemented
                            ? Reason::kUnsupported
                            : Reason::kInternal;
  return MakeError(code, {reason, absl::StrCat("cuDNN ", what),
                          std::string(message), "success"});
}

// Calls `function`, which returns a Status and may throw in cudnn-frontend.
template <typename Function>
absl::Status Guard(absl::string_view what, Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::exception& error) {
    return Failure(absl::StatusCode::kInternal, what, error.what());
  }
}

}  // namespace convgrad::cuda

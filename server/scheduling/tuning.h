// The tuning run: times every backend's ways to compute a list of problems.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/registry.h"

namespace convgrad {

// Returns the problems of a text with one problem string a line. Empty lines
// and those that begin with # don't count.
// Errors: kInvalidArgument naming the line and what is wrong with it.
absl::StatusOr<std::vector<ConvProblem>> ParseProblems(absl::string_view text);

// Has every backend time the forward and the gradients of `problem`, in every
// dtype, for activations in NCX and in NXC, on this thread with a team of
// `threads`. What was timed is then in Backend::tuning().
// Errors: kInternal if a backend fails.
absl::Status TuneProblem(const ConvProblem& problem, int threads,
                         const std::vector<RegisteredBackend>& backends);

}  // namespace convgrad

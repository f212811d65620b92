// Which plan file the process follows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/registry.h"
#include "server/machine.h"
#include "server/scheduling/plan_file.h"
#include "server/scheduling/plan_origin.h"

namespace convgrad {

// Returns what plans are timed on here, for workers of `threads` threads.
// Instruction set and library are those of the first backend that computes on
// the CPU with a library.
PlanOrigin OriginHere(const Machine& machine, int threads,
                      const std::vector<RegisteredBackend>& backends);

// Returns whether `value` of --plan_file names no file but has one looked for.
bool IsAutomatic(absl::string_view value);

struct FoundPlanFile {
  std::string path;
  PlanFile file;
};

// Returns the first by name of the files FOLDER/*.plan that were timed on what
// `here` is, nullopt if there is none. Files that can't be read, or aren't of a
// plan file's form, are passed over with a warning in the log.
std::optional<FoundPlanFile> FindPlanFile(const std::string& folder,
                                          const PlanOrigin& here);

// Has the backends follow what `value`, that of --plan_file, stands for: empty
// for nothing, "auto" and "auto:FOLDER" for what FindPlanFile finds, else the
// path of a file. The log says which file it is, and warns if that is of
// another kind of machine.
// Errors: kInvalidArgument naming the file or a line, if `value` is a path;
// what is found automatically is logged instead.
absl::Status FollowPlanFile(const std::string& value, const PlanOrigin& here,
                            const std::vector<RegisteredBackend>& backends);

}  // namespace convgrad

#include "server/scheduling/plan_file.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backends/core/status.h"

namespace convgrad {

absl::StatusOr<PlanFile> ParsePlanFile(absl::string_view text) {
  PlanFile file;
  ASSIGN_OR_RETURN(file.origin, ParseHeader(text));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (!absl::StrContains(parts.second, " = ")) {
      return InvalidField(Reason::kMalformed, "plan file",
                          absl::StrCat("\"", line, "\""),
                          "BACKEND: WHAT = CHOICE");
    }
    absl::StrAppend(&file.tunings[std::string(parts.first)], parts.second,
                    "\n");
  }
  return file;
}

absl::Status LoadPlanFile(const PlanFile& file,
                          const std::vector<RegisteredBackend>& backends) {
  for (const RegisteredBackend& entry : backends) {
    const auto tuning = file.tunings.find(std::string(entry.name));
    if (tuning == file.tunings.end() || !entry.backend.ok()) continue;
    RETURN_IF_ERROR((*entry.backend)->LoadTuning(tuning->second));
  }
  return absl::OkStatus();
}

std::string PlanLinesOf(const std::vector<RegisteredBackend>& backends) {
  std::string text;
  for (const RegisteredBackend& entry : backends) {
    if (!entry.backend.ok()) continue;
    const std::string tuning = (*entry.backend)->tuning();
    for (absl::string_view line :
         absl::StrSplit(tuning, '\n', absl::SkipEmpty())) {
      absl::StrAppend(&text, entry.name, ": ", line, "\n");
    }
  }
  return text;
}

}  // namespace convgrad

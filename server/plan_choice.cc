#include "server/plan_choice.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "backends/core/status.h"
#include "server/text_file.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

constexpr absl::string_view kAuto = "auto";

// Where the image has deploy/plans.
constexpr absl::string_view kInstalledPlans = "/usr/share/convgrad/plans";

absl::StatusOr<PlanFile> ReadPlanFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile("plan_file", path));
  return ParsePlanFile(text);
}

// Returns the paths of the folder's *.plan, sorted.
std::vector<std::string> PlanFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    if (entry->path().extension() == ".plan") paths.push_back(entry->path());
  }
  if (error) {
    spdlog::warn("no plan file is looked for in {}: {}", folder,
                 error.message());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void FollowFound(const std::string& folder, const PlanOrigin& here,
                 const std::vector<RegisteredBackend>& backends) {
  const std::optional<FoundPlanFile> found = FindPlanFile(folder, here);
  if (!found) {
    spdlog::info(
        "plans follow the heuristics alone: {} has no plan file for {}", folder,
        Describe(here));
    return;
  }
  const absl::Status status = LoadPlanFile(found->file, backends);
  if (status.ok()) {
    spdlog::info("plans follow {}", found->path);
  } else {
    spdlog::warn("plans don't follow all of {}: {}", found->path,
                 std::string(status.message()));
  }
}

}  // namespace

PlanOrigin OriginHere(const Machine& machine, int threads,
                      const std::vector<RegisteredBackend>& backends) {
  PlanOrigin origin;
  origin.cpu = machine.cpu;
  origin.cpu_name = machine.cpu_name;
  origin.threads = threads;
  for (const RegisteredBackend& entry : backends) {
    if (!entry.backend.ok()) continue;
    const BackendCapabilities can = (*entry.backend)->capabilities();
    if (can.cpu_features.empty()) continue;
    origin.isa = absl::StrJoin(can.cpu_features, ",");
    origin.library = absl::StrCat(entry.name, " ", can.version);
    break;
  }
  return origin;
}

bool IsAutomatic(absl::string_view value) {
  return value == kAuto || absl::StartsWith(value, absl::StrCat(kAuto, ":"));
}

std::optional<FoundPlanFile> FindPlanFile(const std::string& folder,
                                          const PlanOrigin& here) {
  for (const std::string& path : PlanFilesIn(folder)) {
    absl::StatusOr<PlanFile> file = ReadPlanFile(path);
    if (!file.ok()) {
      spdlog::warn("{} is passed over: {}", path,
                   std::string(file.status().message()));
    } else if (file->origin && IsSameKind(*file->origin, here)) {
      return FoundPlanFile{path, *std::move(file)};
    }
  }
  return std::nullopt;
}

absl::Status FollowPlanFile(const std::string& value, const PlanOrigin& here,
                            const std::vector<RegisteredBackend>& backends) {
  if (value.empty()) return absl::OkStatus();
  if (IsAutomatic(value)) {
    absl::string_view folder = value;
    if (!absl::ConsumePrefix(&folder, "auto:")) folder = kInstalledPlans;
    FollowFound(std::string(folder), here, backends);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const PlanFile file, ReadPlanFile(value));
  RETURN_IF_ERROR(LoadPlanFile(file, backends));
  spdlog::info("plans follow {}", value);
  if (!file.origin || !IsSameKind(*file.origin, here)) {
    spdlog::warn(
        "{} was timed on another kind of machine: found {}, expected {}", value,
        file.origin ? Describe(*file.origin) : "no word of it", Describe(here));
  }
  return absl::OkStatus();
}

}  // namespace convgrad

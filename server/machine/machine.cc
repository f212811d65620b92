#include "server/machine/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace convgrad {
namespace {

// Node numbers may have gaps, up to here.
constexpr int kMaxNodes = 64;

constexpr size_t kMaxModelBytes = 256;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> ReadWords(const std::string& path) {
  return absl::StrSplit(ReadFile(path), absl::ByAnyChar(" \n"),
                        absl::SkipEmpty());
}

// Returns the folder of the process in the hierarchy of `controller` ("" is
// version 2's) and the folders above it: each of them limits.
std::vector<std::string> CgroupFolders(const std::string& root,
                                       absl::string_view controller) {
  const std::string mount = absl::StrCat(
      root, "/sys/fs/cgroup", controller.empty() ? "" : "/", controller);
  std::vector<std::string> folders = {mount};
  for (absl::string_view line :
       absl::StrSplit(ReadFile(root + "/proc/self/cgroup"), '\n')) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<absl::string_view> controllers =
        absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) ==
        controllers.end()) {
      continue;
    }
    std::string folder = mount;
    for (absl::string_view name :
         absl::StrSplit(parts[2], '/', absl::SkipEmpty())) {
      absl::StrAppend(&folder, "/", name);
      folders.push_back(folder);
    }
  }
  return folders;
}

// The limits of the process's cgroup and of the cgroups above it.
struct Limits {
  int64_t memory_bytes = kNoLimit;
  // The CPU time that quotas allow, in cores.
  double cores = std::numeric_limits<double>::infinity();
  // Whether there is a file of a memory limit.
  bool has_memory = false;
  // Whether all files have valid content.
  bool are_valid = true;
};

// Returns the `count` numbers of a file of a limit, which are positive. "max"
// and -1 in the first place are kNoLimit. Returns no numbers if there is no
// file, or if its content isn't valid.
std::vector<int64_t> ReadNumbers(const std::string& path, size_t count,
                                 Limits* limits) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return {};
  const std::vector<std::string> words = ReadWords(path);
  std::vector<int64_t> numbers(count, kNoLimit);
  bool is_valid = words.size() == count;
  for (size_t i = 0; is_valid && i < count; ++i) {
    const bool is_none = i == 0 && (words[i] == "max" || words[i] == "-1");
    is_valid =
        is_none || (absl::SimpleAtoi(words[i], &numbers[i]) && numbers[i] > 0);
  }
  if (is_valid) return numbers;
  limits->are_valid = false;
  return {};
}

Limits ReadLimitFiles(const std::string& root) {
  Limits limits;
  const auto limit_memory = [&](const std::string& path) {
    for (const int64_t bytes : ReadNumbers(path, 1, &limits)) {
      limits.has_memory = true;
      limits.memory_bytes = std::min(limits.memory_bytes, bytes);
    }
  };
  const auto limit_cores = [&](int64_t quota, int64_t period) {
    limits.cores = std::min(
        limits.cores, static_cast<double>(quota) / static_cast<double>(period));
  };
  for (const std::string& folder : CgroupFolders(root, "")) {
    limit_memory(folder + "/memory.max");
    const auto cpu = ReadNumbers(folder + "/cpu.max", 2, &limits);
    if (!cpu.empty()) limit_cores(cpu[0], cpu[1]);
  }
  for (const std::string& folder : CgroupFolders(root, "memory")) {
    limit_memory(folder + "/memory.limit_in_bytes");
  }
  for (const std::string& folder : CgroupFolders(root, "cpu")) {
    const auto quota = ReadNumbers(folder + "/cpu.cfs_quota_us", 1, &limits);
    const auto period = ReadNumbers(folder + "/cpu.cfs_period_us", 1, &limits);
    if (!quota.empty() && !period.empty()) limit_cores(quota[0], period[0]);
  }
  return limits;
}

// Sets the usable cores and the memory of a machine whose cores are set.
void SetLimits(const Limits& limits, Machine* machine) {
  const double usable = std::min<double>(
      static_cast<double>(machine->cores.size()), limits.cores);
  machine->usable_cores = std::max(1, static_cast<int>(usable));
  machine->memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
  machine->memory_name = Machine().memory_name;
  if (limits.memory_bytes >= machine->memory_bytes) return;
  machine->memory_bytes = limits.memory_bytes;
  machine->memory_name = "the container's memory limit";
}

// Reads e.g. "0-3,8-11".
std::set<int> ReadCoreList(const std::string& path) {
  std::set<int> cores;
  for (absl::string_view range : absl::StrSplit(
           ReadFile(path), absl::ByAnyChar(",\n"), absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first, last;
    if (!absl::SimpleAtoi(ends.first, &first)) continue;
    if (!absl::SimpleAtoi(ends.second, &last)) last = first;
    for (int core = first; core <= last; ++core) cores.insert(core);
  }
  return cores;
}

// Puts the cores of a node next to each other, and counts the nodes.
void SortByNode(const std::string& root, Machine* machine) {
  std::vector<int> sorted;
  int nodes = 0;
  for (int node = 0; sorted.size() < machine->cores.size(); ++node) {
    const std::string folder =
        absl::StrCat(root, "/sys/devices/system/node/node", node);
    const std::set<int> of_node = ReadCoreList(folder + "/cpulist");
    if (of_node.empty() && node >= kMaxNodes) return;
    const size_t before = sorted.size();
    for (int core : machine->cores) {
      if (of_node.count(core) > 0) sorted.push_back(core);
    }
    if (sorted.size() > before) ++nodes;
  }
  machine->cores = std::move(sorted);
  machine->nodes = std::max(nodes, 1);
}

// Returns the model of the first CPU. Hypervisors may hide the model's name, so
// the text has the numbers as well.
std::string ReadCpuModel(const std::string& root) {
  std::map<std::string, std::string, std::less<>> first;
  for (absl::string_view line :
       absl::StrSplit(ReadFile(root + "/proc/cpuinfo"), '\n')) {
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    first.emplace(absl::StripAsciiWhitespace(entry.first),
                  absl::StripAsciiWhitespace(entry.second));
  }
  // x86 has the first line, arm64 the second.
  std::string model = first["model name"];
  for (const auto& [vendor, numbers] :
       std::vector<std::pair<const char*, std::vector<const char*>>>{
           {"vendor_id", {"cpu family", "model", "stepping"}},
           {"CPU implementer", {"CPU part", "CPU variant", "CPU revision"}}}) {
    if (first[vendor].empty()) continue;
    std::vector<std::string> found;
    for (const char* number : numbers) found.push_back(first[number]);
    absl::StrAppend(&model, model.empty() ? "" : " ", "(", first[vendor], " ",
                    absl::StrJoin(found, "/"), ")");
  }
  for (char& c : model) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return model.substr(0, kMaxModelBytes);
}

}  // namespace

Machine ReadMachine(const std::string& root) {
  Machine machine;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) machine.cores.push_back(core);
    }
  }
  if (machine.cores.empty()) machine.cores.push_back(0);
  SortByNode(root, &machine);
  SetLimits(ReadLimitFiles(root), &machine);
  machine.cpu_model = ReadCpuModel(root);
  return machine;
}

std::optional<Machine> ReadLimits(const Machine& machine,
                                  const std::string& root) {
  const Limits limits = ReadLimitFiles(root);
  const bool had_limit = machine.memory_name != Machine().memory_name;
  if (!limits.are_valid || (had_limit && !limits.has_memory)) {
    return std::nullopt;
  }
  Machine now = machine;
  SetLimits(limits, &now);
  return now;
}

std::vector<std::vector<int>> CoreSets(const Machine& machine, int workers,
                                       int threads) {
  std::vector<std::vector<int>> sets(workers);
  const bool all_ours =
      machine.usable_cores == static_cast<int>(machine.cores.size());
  if (!all_ours || workers * threads > machine.usable_cores) return sets;
  for (int worker = 0; worker < workers; ++worker) {
    const auto first = machine.cores.begin() + worker * threads;
    sets[worker].assign(first, first + threads);
  }
  return sets;
}

}  // namespace convgrad

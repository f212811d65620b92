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

// Returns the first number of the file; nullopt if there is none ("max", no
// file).
std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t number;
  const std::vector<std::string> words = ReadWords(path);
  if (words.empty() || !absl::SimpleAtoi(words[0], &number)) return {};
  return number;
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

void ReadMemory(const std::string& root, Machine* machine) {
  machine->memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
  auto limit = [machine](const std::string& path) {
    const std::optional<int64_t> found = ReadNumber(path);
    if (!found || *found <= 0 || *found >= machine->memory_bytes) return;
    machine->memory_bytes = *found;
    machine->memory_name = "the container's memory limit";
  };
  for (const std::string& folder : CgroupFolders(root, "")) {
    limit(folder + "/memory.max");
  }
  for (const std::string& folder : CgroupFolders(root, "memory")) {
    limit(folder + "/memory.limit_in_bytes");
  }
}

// Returns the CPU time that quotas allow, in cores.
double CpuQuota(const std::string& root) {
  double cores = std::numeric_limits<double>::infinity();
  for (const std::string& folder : CgroupFolders(root, "")) {
    const std::vector<std::string> words = ReadWords(folder + "/cpu.max");
    double quota;
    double period;
    if (words.size() == 2 && absl::SimpleAtod(words[0], &quota) &&
        absl::SimpleAtod(words[1], &period) && period > 0) {
      cores = std::min(cores, quota / period);
    }
  }
  for (const std::string& folder : CgroupFolders(root, "cpu")) {
    const auto quota = ReadNumber(folder + "/cpu.cfs_quota_us");
    const auto period = ReadNumber(folder + "/cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) continue;
    cores = std::min(cores, static_cast<double>(*quota) / *period);
  }
  return cores;
}

void ReadUsableCores(const std::string& root, Machine* machine) {
  const double usable = std::min<double>(
      static_cast<double>(machine->cores.size()), CpuQuota(root));
  machine->usable_cores = std::max(1, static_cast<int>(usable));
}

enum class Content { kNone, kValid, kInvalid };

// Returns whether the first `words` words of the file are positive numbers.
// "max" and -1 in the first place are valid, too: they stand for no limit.
Content Check(const std::string& path, size_t words) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return Content::kNone;
  const std::vector<std::string> found = ReadWords(path);
  if (found.size() != words) return Content::kInvalid;
  for (size_t i = 0; i < words; ++i) {
    int64_t number;
    const bool is_none = i == 0 && (found[i] == "max" || found[i] == "-1");
    if (is_none || (absl::SimpleAtoi(found[i], &number) && number > 0))
      continue;
    return Content::kInvalid;
  }
  return Content::kValid;
}

// Returns whether the files of limits have valid content, and whether there is
// one of a memory limit if `needs_memory`.
bool AreLimitsKnown(const std::string& root, bool needs_memory) {
  bool has_memory = false;
  for (const auto& [controller, name, words, is_memory] :
       {std::tuple("", "memory.max", 1, true),
        {"", "cpu.max", 2, false},
        {"memory", "memory.limit_in_bytes", 1, true},
        {"cpu", "cpu.cfs_quota_us", 1, false},
        {"cpu", "cpu.cfs_period_us", 1, false}}) {
    for (const std::string& folder : CgroupFolders(root, controller)) {
      const Content content = Check(absl::StrCat(folder, "/", name), words);
      if (content == Content::kInvalid) return false;
      has_memory |= is_memory && content == Content::kValid;
    }
  }
  return has_memory || !needs_memory;
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
  ReadUsableCores(root, &machine);
  ReadMemory(root, &machine);
  machine.cpu_model = ReadCpuModel(root);
  return machine;
}

std::optional<Machine> ReadLimits(const Machine& machine,
                                  const std::string& root) {
  Machine now = machine;
  now.memory_name = Machine().memory_name;
  const bool had_limit = machine.memory_name != now.memory_name;
  if (!AreLimitsKnown(root, had_limit)) return std::nullopt;
  ReadUsableCores(root, &now);
  ReadMemory(root, &now);
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

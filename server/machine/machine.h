// `Machine` describes the cores and the memory that this process may use.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convgrad {

struct Machine {
  // Cores that the process may use, ordered by NUMA node.
  std::vector<int> cores;
  // NUMA nodes that have some of these cores. Range: >= 1.
  int nodes = 1;
  // CPU time that the process may use, in cores; fewer than `cores` under a
  // cgroup quota. Range: >= 1.
  int usable_cores = 1;
  // The smaller of RAM and the cgroup's limit, and its name for an operator.
  int64_t memory_bytes = 0;
  std::string memory_name = "this machine's memory";
  // E.g. "Intel(R) Xeon(R) Processor (GenuineIntel 6/167/1)": printable ASCII,
  // at most 256 bytes. Empty if the system doesn't tell.
  std::string cpu_model;
};

// Reads affinity, NUMA nodes, RAM and the cgroup (version 1 or 2) of the
// process. `root` is a prefix of the paths of /proc and /sys.
Machine ReadMachine(const std::string& root = "");

// Returns `machine` with the limits that the cgroup has now: `usable_cores`,
// `memory_bytes` and `memory_name`. Returns nullopt if they are unknown: a file
// of a limit has no valid content, or no file of a memory limit is left.
std::optional<Machine> ReadLimits(const Machine& machine,
                                  const std::string& root = "");

// Returns a set of `threads` cores for each worker if there are enough cores
// and no quota. Otherwise returns empty sets: with more workers than cores, or
// with containers that share cores, several workers would be pinned to the same
// cores.
std::vector<std::vector<int>> CoreSets(const Machine& machine, int workers,
                                       int threads);

}  // namespace convgrad

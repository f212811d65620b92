// Which engine computes a graph fastest, as timed rather than predicted.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/core/mutex.h"
#include "backends/cuda/cuda_graph.h"

namespace convgrad::cuda {

// Returns what a choice is made for, e.g.
// "backward_data conv2d_n16_c64_o64_i56_k3_p1 bf16>bf16 nxc": the pass, its
// lowered problem, dtypes and format; "+bias" where that is fused. On `device`,
// its description.
std::string KeyOf(const GraphSpec& spec, absl::string_view device);

// Thread-safe.
class EngineChoices {
 public:
  // Returns cuDNN's name of the engine.
  std::optional<std::string> Find(const std::string& key) const;
  void Put(std::string key, std::string engine);

  // Returns one "KEY = ENGINE" a line, sorted.
  std::string ToText() const;
  // Adds the lines of such a text; the later one of a key counts.
  // Errors: kInvalidArgument naming the line.
  absl::Status AddText(absl::string_view text);

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::string> engines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad::cuda

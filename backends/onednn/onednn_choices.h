// How an operation or a pass is computed fastest, as timed rather than
// modelled.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/core/mutex.h"
#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_partition.h"

namespace convgrad::onednn {

// Returns what a choice is made for, e.g.
// "backward_data conv2d_n16_c64_o64_i56_k3_p1 f32 data=f32:nxc out=f32:nxc
// threads=2": the pass, its lowered problem, how its activations come (with
// elements left out: "f32:nxc/strided"; converted: "f32:nxc/copied"), and which
// of them another pass of the operation reads, too ("shared=out"). The
// weight's layout and the bias hardly count and are left out.
std::string KeyOf(const PassSpec& spec);

// Thread-safe.
class Choices {
 public:
  // The format of the pass that KeyOf(spec) names.
  std::optional<Format> FindFormat(const std::string& key) const;
  // The partition of the operation that KeyOf(operation, threads) names.
  std::optional<Partition> FindPartition(const std::string& key) const;
  bool Has(const std::string& key) const;
  // Requires: the name of a format or a partition.
  void Put(std::string key, absl::string_view choice);

  // Returns one "KEY = CHOICE" a line, sorted.
  std::string ToText() const;
  // Adds the lines of such a text; the later one of a key counts.
  // Errors: kInvalidArgument naming the line.
  absl::Status AddText(absl::string_view text);

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::string> choices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad::onednn

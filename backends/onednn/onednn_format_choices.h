// Which format computes a pass fastest, as timed rather than modelled.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/core/mutex.h"
#include "backends/onednn/onednn_candidates.h"

namespace convgrad::onednn {

// Returns what a choice is made for, e.g.
// "backward_data conv2d_n16_c64_o64_i56_k3_p1 f32 data=f32:nxc out=f32:nxc
// threads=2": the pass, its lowered problem, how its activations come, and
// which of them another pass of the operation reads, too ("shared=out"). The
// weight's layout and the bias hardly count and are left out.
std::string KeyOf(const PassSpec& spec);

// Thread-safe.
class FormatChoices {
 public:
  std::optional<Format> Find(const std::string& key) const;
  void Put(std::string key, Format format);

  // Returns one "KEY = FORMAT" a line, sorted.
  std::string ToText() const;
  // Adds the lines of such a text; the later one of a key counts.
  // Errors: kInvalidArgument naming the line.
  absl::Status AddText(absl::string_view text);

 private:
  mutable Mutex mutex_;
  std::map<std::string, Format> formats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad::onednn

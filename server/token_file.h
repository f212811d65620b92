// `TokenFile` keeps the tokens of the gate equal to those of a file.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "backends/core/mutex.h"
#include "server/rpc/transport/gate.h"

namespace convgrad {

// Thread-safe.
class TokenFile {
 public:
  // `gate` outlives it. An empty path is no file.
  TokenFile(std::string path, Gate* gate);

  // Gives the gate the file's tokens, if they have changed.
  // Errors: kInvalidArgument for a file that is none; the gate keeps what it
  // has. The same error isn't given twice in a row.
  absl::Status Refresh();

 private:
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Gate* const gate_;
  Mutex mutex_;
  // What the gate has.
  std::optional<std::string> text_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

// `TokenFile` keeps the tokens of the gate equal to those of a file.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "backends/core/mutex.h"
#include "server/rpc/transport/gate.h"

namespace convgrad {

// `TokenFile` is thread-safe.
class TokenFile {
 public:
  // `gate` outlives this. An empty path means no file.
  TokenFile(std::string path, Gate* gate);

  // Passes the file's tokens to the gate if they have changed.
  // Errors: kInvalidArgument for an invalid file; the gate then keeps its
  // tokens.
  absl::Status Refresh();

 private:
  const std::string path_;
  Gate* const gate_;
  Mutex mutex_;
  // The file's content that the gate has.
  std::optional<std::string> text_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

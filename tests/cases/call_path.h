// `PathClient` sends an operation to a server on one of several paths.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client.h"

namespace convgrad::testing_support {

enum class CallPath {
  kMessage,  // Client::Run
  kStock,    // protobuf's own messages, through a stub as anyone generates it
  kStream,   // Client::RunStreamed, one item of the batch a slice
  kRegion,   // tensors in shared memory
};

std::optional<CallPath> ParseCallPath(absl::string_view name);

// `PathClient` is thread-safe.
class PathClient {
 public:
  // Connects. `regions` is the server's side socket; only kRegion needs it.
  static absl::StatusOr<std::unique_ptr<PathClient>> Connect(
      const std::string& server, const std::string& regions, CallPath path);
  virtual ~PathClient() = default;

  // Returns the reply with all results in `data`.
  virtual absl::StatusOr<OperationReply> Run(const OperationCall& call) = 0;
};

}  // namespace convgrad::testing_support

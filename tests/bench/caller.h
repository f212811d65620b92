// A call to a server, made again and again, over one of the ways there are.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad::bench {

// Not thread-safe; a connection of its own. Errors end the program.
class Caller {
 public:
  virtual ~Caller() = default;
  // Returns how long the call took, as the caller saw it.
  virtual absl::Duration Run() = 0;
  // Returns `, "stages_ms": {...}` of the last call: the server's report.
  virtual std::string StagesAsJson() const = 0;
};

// In a message each way. `server` is "HOST:PORT" or "unix:PATH".
std::unique_ptr<Caller> MakeMessageCaller(const std::string& server,
                                          const ConvOperation& operation);

// As frames, in slices of the batch.
std::unique_ptr<Caller> MakeStreamCaller(const std::string& server,
                                         const ConvOperation& operation);

// With the tensors in a region. If `copies`, the call's time has the operands'
// way there and the results' way back in it.
std::unique_ptr<Caller> MakeRegionCaller(const std::string& server,
                                         const std::string& regions,
                                         const ConvOperation& operation,
                                         bool copies);

}  // namespace convgrad::bench

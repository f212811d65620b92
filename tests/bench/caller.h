// `Caller` makes the same call to a server repeatedly, by message, by stream or
// with a region.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "backends/core/convolution/conv_operation.h"

namespace convgrad::bench {

// Not thread-safe; each has its own connection. Errors end the program.
class Caller {
 public:
  virtual ~Caller() = default;
  // Makes the call and returns its time, measured by the client.
  virtual absl::Duration Run() = 0;
  // Returns `, "stages_ms": {...}` of the last call: the server's report.
  virtual std::string StagesAsJson() const = 0;
};

// Returns a caller that sends one message each way. `server` is "HOST:PORT" or
// "unix:PATH".
std::unique_ptr<Caller> MakeMessageCaller(const std::string& server,
                                          const ConvOperation& operation);

// Returns a caller that sends frames, in slices of the batch.
std::unique_ptr<Caller> MakeStreamCaller(const std::string& server,
                                         const ConvOperation& operation);

// Returns a caller whose tensors are in a region. If `copies`, the call's time
// includes the copies of operands to the region and of results from it.
std::unique_ptr<Caller> MakeRegionCaller(const std::string& server,
                                         const std::string& regions,
                                         const ConvOperation& operation,
                                         bool copies);

}  // namespace convgrad::bench

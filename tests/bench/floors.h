// What a call costs at least: the same bytes moved by less than a server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace convgrad::bench {

// How many bytes a call has each way.
struct CallBytes {
  int64_t request = 0;
  int64_t reply = 0;
};

// Something that is timed again and again. Not thread-safe.
class Floor {
 public:
  virtual ~Floor() = default;
  // Ends the program on an error.
  virtual absl::Duration Run() = 0;
};

// A request over TCP on loopback to a thread that answers when it has all of
// it, and the reply; plain read and write.
std::unique_ptr<Floor> MakeSocketFloor(CallBytes bytes);

// The same as a unary gRPC call of raw messages, without a copy of ours.
std::unique_ptr<Floor> MakeGrpcFloor(CallBytes bytes);

// The same as copies to memory that another process could share, and from it.
std::unique_ptr<Floor> MakeCopyFloor(CallBytes bytes);

// PyTorch's backward of a 2-D convolution, channels last, in a process of its
// own: what tests/bench/torch_floor.py prints, run by the interpreter `python`.
// `task` is its command line.
std::unique_ptr<Floor> MakeTorchFloor(const std::string& python,
                                      const std::string& task);

}  // namespace convgrad::bench

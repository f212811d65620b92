// `Floor` is a lower bound of a call's time: the same bytes, moved with less
// work than a server's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace convgrad::bench {

// The bytes of a call in each direction.
struct CallBytes {
  int64_t request = 0;
  int64_t reply = 0;
};

// A measured operation. Not thread-safe.
class Floor {
 public:
  virtual ~Floor() = default;
  // Runs once and returns the time. Ends the program on an error.
  virtual absl::Duration Run() = 0;
};

// Returns a floor of a request over loopback TCP to a thread that answers when
// it has the whole request, with plain read and write.
std::unique_ptr<Floor> MakeSocketFloor(CallBytes bytes);

// Returns the same as a unary gRPC call of raw messages, without copies.
std::unique_ptr<Floor> MakeGrpcFloor(CallBytes bytes);

// Returns the same as copies to and from memory that another process could
// share.
std::unique_ptr<Floor> MakeCopyFloor(CallBytes bytes);

// Returns PyTorch's backward of a 2-D convolution, channels last, in a process
// of its own: the output of tests/bench/torch_floor.py, run by the interpreter
// `python`. `task` is its command line.
std::unique_ptr<Floor> MakeTorchFloor(const std::string& python,
                                      const std::string& task);

}  // namespace convgrad::bench

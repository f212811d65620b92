// The bytes of a received message, as gRPC wants them back.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "grpcpp/support/slice.h"

namespace convgrad {

// References to slices that gRPC received. Received bytes count in the server's
// resource quota, and giving them back may wake what reclaims memory for it;
// gRPC 1.51 crashes where that happens in the end of a grpc::Slice, which sets
// no execution context up (https://github.com/grpc/grpc/pull/28655). So the
// last reference to such a slice has to be one of these, or of a
// grpc::ByteBuffer. Thread-compatible.
class ReceivedSlices {
 public:
  ReceivedSlices() = default;
  explicit ReceivedSlices(std::vector<grpc::Slice> slices)
      : slices_(std::move(slices)) {}
  ReceivedSlices(ReceivedSlices&& other) noexcept { *this = std::move(other); }
  ReceivedSlices& operator=(ReceivedSlices&& other) noexcept;
  ~ReceivedSlices() { Release(slices_.size()); }

  size_t count() const { return slices_.size(); }
  // Empty once it is released.
  const grpc::Slice& operator[](size_t i) const { return slices_[i]; }

  // Lets go of the first `count` slices, in one go. Requires: count <= count().
  void Release(size_t count);

 private:
  std::vector<grpc::Slice> slices_;
  size_t released_ = 0;  // from the front
};

}  // namespace convgrad

// `ReceivedSlices` releases the bytes of a received message safely.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "grpcpp/support/slice.h"

namespace convgrad {

// Holds references to slices that gRPC received. Received bytes count in the
// server's resource quota, and freeing them may wake gRPC's memory reclaimer.
// gRPC 1.51 crashes if that happens in the destructor of a grpc::Slice, which
// sets up no execution context (https://github.com/grpc/grpc/pull/28655).
// Therefore the last reference to such a slice must be in this class or in a
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
  // Returns slice i, which is empty after its release.
  const grpc::Slice& operator[](size_t i) const { return slices_[i]; }

  // Releases the first `count` slices at once. Requires: count <= count().
  void Release(size_t count);

 private:
  std::vector<grpc::Slice> slices_;
  size_t released_ = 0;  // number of leading slices
};

}  // namespace convgrad

#include "proto/received_slices.h"

#include "grpcpp/support/byte_buffer.h"

namespace convgrad {

ReceivedSlices& ReceivedSlices::operator=(ReceivedSlices&& other) noexcept {
  if (this == &other) return *this;
  Release(slices_.size());
  slices_ = std::exchange(other.slices_, {});
  released_ = std::exchange(other.released_, 0);
  return *this;
}

void ReceivedSlices::Release(size_t count) {
  if (count <= released_) return;
  // Destroyed after the references below, so this ByteBuffer frees the bytes.
  const grpc::ByteBuffer last(&slices_[released_], count - released_);
  for (; released_ < count; ++released_) slices_[released_] = grpc::Slice();
}

}  // namespace convgrad

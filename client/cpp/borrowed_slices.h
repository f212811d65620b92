// `BorrowedSlices` makes gRPC slices over the caller's memory, and waits until
// gRPC has freed them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>

#include "absl/types/span.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

// SliceOf may be called on any thread, but not beside AwaitRelease.
class BorrowedSlices {
 public:
  BorrowedSlices() {
    auto promise = std::make_shared<std::promise<void>>();
    released_ = promise->get_future();
    owner_ = std::shared_ptr<const void>(
        this, [promise](const void*) { promise->set_value(); });
  }

  // Returns a slice over `bytes`, which the caller must keep until AwaitRelease
  // has returned.
  grpc::Slice SliceOf(absl::Span<const std::byte> bytes) const {
    return SliceOver(bytes.data(), std::ssize(bytes), owner_);
  }

  // Blocks until the last slice is freed.
  void AwaitRelease() {
    owner_.reset();
    released_.wait();
  }

 private:
  std::future<void> released_;
  std::shared_ptr<const void> owner_;
};

}  // namespace convgrad

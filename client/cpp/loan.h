// Memory of the caller that is lent to gRPC, and the wait for its return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>

#include "absl/types/span.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

// Slices may be taken on any thread, but not beside AwaitReturn.
class Loan {
 public:
  Loan() {
    auto promise = std::make_shared<std::promise<void>>();
    returned_ = promise->get_future();
    owner_ = std::shared_ptr<const void>(
        this, [promise](const void*) { promise->set_value(); });
  }

  grpc::Slice SliceOf(absl::Span<const std::byte> bytes) const {
    return SliceOver(bytes.data(), static_cast<int64_t>(bytes.size()), owner_);
  }

  // Returns when the last slice is gone.
  void AwaitReturn() {
    owner_.reset();
    returned_.wait();
  }

 private:
  std::future<void> returned_;
  std::shared_ptr<const void> owner_;
};

}  // namespace convgrad

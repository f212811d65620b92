// `Loan` lends the caller's memory to gRPC and waits until gRPC has released
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>

#include "absl/types/span.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

// Thread-compatible: any thread may call SliceOf, but not concurrently with
// AwaitReturn.
class Loan {
 public:
  Loan() {
    auto promise = std::make_shared<std::promise<void>>();
    returned_ = promise->get_future();
    owner_ = std::shared_ptr<const void>(
        this, [promise](const void*) { promise->set_value(); });
  }

  // Returns a slice over `bytes`, without a copy.
  grpc::Slice SliceOf(absl::Span<const std::byte> bytes) const {
    return SliceOver(bytes.data(), static_cast<int64_t>(bytes.size()), owner_);
  }

  // Blocks until gRPC has released every slice.
  void AwaitReturn() {
    owner_.reset();
    returned_.wait();
  }

 private:
  std::future<void> returned_;
  std::shared_ptr<const void> owner_;
};

}  // namespace convgrad

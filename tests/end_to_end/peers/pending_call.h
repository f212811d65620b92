// `PendingCall` is a ConvBackward in flight, for tests that cancel it or wait
// for it.
#pragma once

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backends/core/mutex.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {

// The constructor starts the call. Await must come before the destructor.
class PendingCall {
 public:
  PendingCall(v1::ConvGrad::Stub& stub, absl::Duration timeout,
              v1::ConvBackwardRequest request = SeedBackward(),
              const std::string& priority = "")
      : request_(std::move(request)) {
    if (timeout != absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    }
    if (!priority.empty()) context_.AddMetadata("convgrad-priority", priority);
    stub.async()->ConvBackward(&context_, &request_, &response_,
                               [this](grpc::Status status) {
                                 MutexLock lock(&mutex_);
                                 status_ = std::move(status);
                                 done_ = true;
                                 changed_.NotifyAll();
                               });
  }
  void Cancel() { context_.TryCancel(); }
  grpc::StatusCode Await() {
    MutexLock lock(&mutex_);
    while (!done_) changed_.Wait(&mutex_);
    return status_.error_code();
  }

 private:
  const v1::ConvBackwardRequest request_;
  grpc::ClientContext context_;
  v1::ConvBackwardResponse response_;
  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

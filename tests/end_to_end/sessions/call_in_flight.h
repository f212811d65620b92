// `CallInFlight` is a call of a session in flight, which a test may repeat,
// cancel and wait for.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {

// The requests that change a session.
using ChangeRequest =
    std::variant<v1::PutTensorsRequest, v1::DropTensorsRequest,
                 v1::ConvForwardRequest, v1::ConvBackwardRequest>;

inline std::string PathOf(const v1::PutTensorsRequest& /*request*/) {
  return "/convgrad.v1.ConvGradSessions/PutTensors";
}
inline std::string PathOf(const v1::DropTensorsRequest& /*request*/) {
  return "/convgrad.v1.ConvGradSessions/DropTensors";
}
inline std::string PathOf(const v1::GetTensorsRequest& /*request*/) {
  return "/convgrad.v1.ConvGradSessions/GetTensors";
}
inline std::string PathOf(const v1::ConvForwardRequest& /*request*/) {
  return "/convgrad.v1.ConvGrad/ConvForward";
}
inline std::string PathOf(const v1::ConvBackwardRequest& /*request*/) {
  return "/convgrad.v1.ConvGrad/ConvBackward";
}

// `CallInFlight` is owned by one thread.
class CallInFlight {
 public:
  template <typename Request>
  CallInFlight(const std::shared_ptr<grpc::Channel>& channel,
               const Request& request, const ChangeMetadata& change,
               absl::Duration timeout = absl::Minutes(2), int64_t after = 0)
      : CallInFlight(channel, PathOf(request), request.SerializeAsString(),
                     change, timeout, after) {}
  // Sends the message `bytes` to `path`.
  CallInFlight(const std::shared_ptr<grpc::Channel>& channel,
               const std::string& path, const std::string& bytes,
               const ChangeMetadata& change,
               absl::Duration timeout = absl::Minutes(2), int64_t after = 0)
      : stub_(channel) {
    AddTo(&context_, change);
    if (after > 0) context_.AddMetadata(kAfterKey, std::to_string(after));
    context_.AddMetadata(kRequestBytesKey, std::to_string(bytes.size()));
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    const grpc::Slice slice(bytes);
    call_ = stub_.PrepareUnaryCall(&context_, path, grpc::ByteBuffer(&slice, 1),
                                   &queue_);
    call_->StartCall();
    call_->Finish(&response_, &status_, this);
  }

  void Cancel() { context_.TryCancel(); }

  // Blocks until the call ends; call it once. The response is in bytes.
  SessionReply<std::string> Await() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
    SessionReply<std::string> reply;
    reply.status = status_;
    reply.trailers = TrailersOf(context_);
    reply.number = NumberOf(context_);
    std::vector<grpc::Slice> slices;
    if (response_.Valid() && response_.Dump(&slices).ok()) {
      for (const grpc::Slice& slice : slices) {
        reply.response.append(reinterpret_cast<const char*>(slice.begin()),
                              slice.size());
      }
    }
    return reply;
  }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call_;
};

// Starts a change.
inline std::unique_ptr<CallInFlight> StartChange(
    const std::shared_ptr<grpc::Channel>& channel, const ChangeRequest& request,
    const ChangeMetadata& change, absl::Duration timeout = absl::Minutes(2)) {
  return std::visit(
      [&](const auto& message) {
        return std::make_unique<CallInFlight>(channel, message, change,
                                              timeout);
      },
      request);
}

}  // namespace convgrad

// A call without tensors: a small message in, a small one out.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// `ControlCall` answers a call at once, on gRPC's thread. Its message is
// bounded before it is read and parsed only for clients that the gate has let
// in.
template <typename Request, typename Response>
class ControlCall final : public MessageCall {
 public:
  // Fills the response. Errors are what the call ends with.
  using Work = absl::Status (*)(const CallServices& services,
                                const Visit& visit, const Request& request,
                                Response* response);

  ControlCall(const Method& method, const CallServices& services,
              grpc::GenericCallbackServerContext* context, Work work)
      : MessageCall(method, services, context), work_(work) {}

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    Request request;
    Response response;
    absl::Status status = Split(message, &request).status();
    if (status.ok()) status = work_(services(), visit(), request, &response);
    Finish(std::move(status), response);
  }

  const Work work_;
};

}  // namespace convgrad

// `ControlCall` handles a call without tensors: a small message in, a small
// message out.
#pragma once

#include "absl/status/status.h"
#include "backends/core/status.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// `ControlCall` answers on gRPC's thread. The server limits the size of its
// message before it reads the message, and parses it only after the gate has
// admitted the client.
template <typename Request, typename Response>
class ControlCall final : public MessageCall {
 public:
  // Fills the response. An error is the status of the call.
  using Work = absl::Status (*)(const CallServices& services,
                                const CallPermit& permit,
                                const Request& request, Response* response);

  ControlCall(const Method& method, const CallServices& services,
              grpc::GenericCallbackServerContext* context, Work work)
      : MessageCall(method, services, context), work_(work) {}

 private:
  absl::Status OnMessage(grpc::ByteBuffer* message) override {
    Request request;
    RETURN_IF_ERROR(Split(message, &request).status());
    Response response;
    RETURN_IF_ERROR(work_(services(), permit(), request, &response));
    return AnswerWith(response);
  }

  const Work work_;
};

}  // namespace convgrad

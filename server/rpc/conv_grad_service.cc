#include "server/rpc/conv_grad_service.h"

#include <string>

#include "backends/core/status.h"
#include "server/rpc/conv_call.h"
#include "server/rpc/stream_call.h"

namespace convgrad {
namespace {

// A call of something that this server doesn't have.
class UnknownCall final : public Call {
 public:
  UnknownCall(const CallServices& services,
              grpc::GenericCallbackServerContext* context)
      : Call(services, context, "unknown", Role::kInfer),
        path_(context->method()) {}

 private:
  void Start() override {
    End(MakeError(absl::StatusCode::kUnimplemented,
                  {Reason::kUnsupported, "method", path_,
                   "ConvForward, ConvBackward, ConvForwardStream, "
                   "ConvBackwardStream or GetCapabilities of "
                   "convgrad.v1.ConvGrad, or Warmup of "
                   "convgrad.v1.ConvGradAdmin"}));
  }

  const std::string path_;
};

Call* MakeCall(const CallServices& services,
               grpc::GenericCallbackServerContext* context) {
  if (context->method() == "/convgrad.v1.ConvGrad/ConvForward") {
    return new ConvCall(services, context, Direction::kForward);
  }
  if (context->method() == "/convgrad.v1.ConvGrad/ConvBackward") {
    return new ConvCall(services, context, Direction::kBackward);
  }
  if (context->method() == "/convgrad.v1.ConvGrad/ConvForwardStream") {
    return new StreamCall(services, context, Direction::kForward);
  }
  if (context->method() == "/convgrad.v1.ConvGrad/ConvBackwardStream") {
    return new StreamCall(services, context, Direction::kBackward);
  }
  return new UnknownCall(services, context);
}

}  // namespace

grpc::ServerGenericBidiReactor* ConvGradService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  Call* call = MakeCall(services_, context);
  call->Begin();
  return call;
}

}  // namespace convgrad

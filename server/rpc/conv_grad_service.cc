#include "server/rpc/conv_grad_service.h"

#include <string>

#include "absl/strings/strip.h"
#include "backends/core/status.h"
#include "server/rpc/control_calls.h"
#include "server/rpc/convolutions/conv_call.h"
#include "server/rpc/convolutions/stream_call.h"
#include "server/rpc/networks/network_calls.h"
#include "server/rpc/session_calls.h"
#include "server/rpc/tensors/get_stream_call.h"
#include "server/rpc/tensors/put_stream_call.h"
#include "server/rpc/tensors/tensor_calls.h"

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
                   "convgrad.v1.ConvGrad, or a method of "
                   "convgrad.v1.ConvGradSessions, ConvGradNetworks or "
                   "ConvGradAdmin"}));
  }

  const std::string path_;
};

// Returns null if the method isn't one of sessions'.
Call* MakeSessionCall(const CallServices& services,
                      grpc::GenericCallbackServerContext* context) {
  absl::string_view method = context->method();
  if (!absl::ConsumePrefix(&method, "/convgrad.v1.ConvGradSessions/")) {
    return nullptr;
  }
  if (Call* call = MakeSessionControlCall(method, services, context)) {
    return call;
  }
  if (method == "PutTensors") return new PutTensorsCall(services, context);
  if (method == "PutTensorsStream") return new PutStreamCall(services, context);
  if (method == "GetTensorsStream") return new GetStreamCall(services, context);
  if (method == "GetTensors") return new GetTensorsCall(services, context);
  if (method == "DropTensors") return new DropTensorsCall(services, context);
  if (method == "ListTensors") return new ListTensorsCall(services, context);
  return nullptr;
}

// Returns null if the method isn't one of networks'.
Call* MakeNetworkCall(const CallServices& services,
                      grpc::GenericCallbackServerContext* context) {
  absl::string_view method = context->method();
  if (!absl::ConsumePrefix(&method, "/convgrad.v1.ConvGradNetworks/")) {
    return nullptr;
  }
  if (method == "LoadProgram") return new LoadProgramCall(services, context);
  if (method == "DropPrograms") return new DropProgramsCall(services, context);
  if (method == "RunProgram") return new RunProgramCall(services, context);
  if (method == "BackwardProgram") {
    return new BackwardProgramCall(services, context);
  }
  if (method == "UpdateParameters") {
    return new UpdateParametersCall(services, context);
  }
  return nullptr;
}

Call* MakeCall(const CallServices& services,
               grpc::GenericCallbackServerContext* context) {
  if (Call* call = MakeSessionCall(services, context)) return call;
  if (Call* call = MakeNetworkCall(services, context)) return call;
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
  if (context->method() == "/convgrad.v1.ConvGrad/GetCapabilities") {
    return MakeCapabilitiesCall(services, context);
  }
  if (context->method() == "/convgrad.v1.ConvGradAdmin/Warmup") {
    return MakeWarmupCall(services, context);
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

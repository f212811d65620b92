#include "server/rpc/conv_grad_service.h"

#include "server/rpc/calls/call.h"
#include "server/rpc/methods.h"

namespace convgrad {

grpc::ServerGenericBidiReactor* ConvGradService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  const Method& method = FindMethod(context->method());
  Call* call = method.make(method, services_, context);
  call->Begin();
  return call;
}

}  // namespace convgrad

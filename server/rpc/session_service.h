// convgrad.v1.ConvGradSessions: answers what carries no tensors itself and
// leaves the rest to ConvGradService.
#pragma once

#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/rpc/call_services.h"

namespace convgrad {

using SessionMethods = v1::ConvGradSessions::WithGenericMethod_PutTensors<
    v1::ConvGradSessions::WithGenericMethod_PutTensorsStream<
        v1::ConvGradSessions::WithGenericMethod_GetTensors<
            v1::ConvGradSessions::WithGenericMethod_GetTensorsStream<
                v1::ConvGradSessions::WithGenericMethod_DropTensors<
                    v1::ConvGradSessions::WithGenericMethod_ListTensors<
                        v1::ConvGradSessions::CallbackService>>>>>>;

// Thread-safe.
class SessionService final : public SessionMethods {
 public:
  // `services` outlives it.
  explicit SessionService(const CallServices& services) : services_(services) {}

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* request,
                                        v1::SessionResponse* response) override;
  grpc::ServerUnaryReactor* ResumeSession(
      grpc::CallbackServerContext* context,
      const v1::ResumeSessionRequest* request,
      v1::SessionResponse* response) override;
  grpc::ServerUnaryReactor* RenewSession(
      grpc::CallbackServerContext* context,
      const v1::RenewSessionRequest* request,
      v1::SessionResponse* response) override;
  grpc::ServerUnaryReactor* CloseSession(
      grpc::CallbackServerContext* context,
      const v1::CloseSessionRequest* request,
      v1::CloseSessionResponse* response) override;
  grpc::ServerUnaryReactor* ListSessions(
      grpc::CallbackServerContext* context,
      const v1::ListSessionsRequest* request,
      v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* HaveTensors(
      grpc::CallbackServerContext* context,
      const v1::HaveTensorsRequest* request,
      v1::HaveTensorsResponse* response) override;

 private:
  const CallServices& services_;
};

}  // namespace convgrad

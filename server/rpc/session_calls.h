// These calls of convgrad.v1.ConvGradSessions carry no tensors.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convgrad/v1/session.pb.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// Each function fills the response of its method (see ControlCall).
// Thread-safe.
absl::Status OpenSession(const CallServices& services, const CallPermit& permit,
                         const v1::OpenSessionRequest& request,
                         v1::SessionResponse* response);
absl::Status RenewSession(const CallServices& services,
                          const CallPermit& permit,
                          const v1::RenewSessionRequest& request,
                          v1::SessionResponse* response);
absl::Status CloseSession(const CallServices& services,
                          const CallPermit& permit,
                          const v1::CloseSessionRequest& request,
                          v1::CloseSessionResponse* response);
absl::Status ListSessions(const CallServices& services,
                          const CallPermit& permit,
                          const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse* response);
absl::Status HaveTensors(const CallServices& services, const CallPermit& permit,
                         const v1::HaveTensorsRequest& request,
                         v1::HaveTensorsResponse* response);

// `ResumeSessionCall` answers when no change of an earlier epoch runs.
class ResumeSessionCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  void OnMessage(grpc::ByteBuffer* message) override;
  absl::StatusOr<SessionUse> FindSession(grpc::ByteBuffer* message);

  // Keeps the session from expiring until the call is over.
  SessionUse resumed_;
};

}  // namespace convgrad

// A call of one message in and one message out.
#pragma once

#include "server/rpc/call.h"

namespace convgrad {

class UnaryCall : public Call {
 public:
  UnaryCall(const CallServices& services,
            grpc::GenericCallbackServerContext* context,
            absl::string_view method, Role role);

 protected:
  // Waits for `bytes` of the budget, then reads the request and goes on with
  // OnRequest. Ends the call if that fails. To be called in Start.
  void Admit(int64_t bytes) { AwaitMemory(bytes); }

  // The request is there: `request()`, paid for by `reservation()`.
  virtual void OnRequest() = 0;

  grpc::ByteBuffer* request() { return &request_; }
  absl::Time read_start() const { return read_start_; }
  absl::Time read_end() const { return read_end_; }

 private:
  void OnMemory(const absl::Status& status) final;
  void OnReadDone(bool ok) final;
  void OnSendInitialMetadataDone(bool ok) final;

  absl::Time read_start_;
  absl::Time read_end_;
  grpc::ByteBuffer request_;
};

}  // namespace convgrad

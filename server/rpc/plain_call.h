// A call that carries no tensors, made and answered by protobuf's stubs: it is
// let in, counted and ended as every other.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/grpcpp.h"
#include "server/rpc/call_record.h"

namespace convgrad {

// Owned by one thread.
class PlainCall {
 public:
  // `method` is the short name that is counted, `role` what it takes.
  PlainCall(const CallServices& services, grpc::CallbackServerContext* context,
            absl::string_view method, Role role);

  // Whether it was let in.
  const absl::Status& admission() const { return admission_; }

  // Counts the call and answers it. To be called once, last.
  void End(const absl::Status& status);

  // Who calls. Requires: it was let in.
  const Visit& visit() const { return record_.visit(); }

  grpc::ServerUnaryReactor* reactor() { return reactor_; }

 private:
  // The context makes it anew each time it is asked.
  grpc::ServerUnaryReactor* const reactor_;
  CallRecord record_;
  const absl::Status admission_;
};

}  // namespace convgrad

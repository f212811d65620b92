// The read of a call's only message.
#pragma once

#include <functional>

#include "grpcpp/impl/call_op_set.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/callback_common.h"

namespace convgrad {

// In place of StartRead, which says the same of a message that gRPC refuses for
// its size and of a client that leaves right after its message: gRPC 1.51 drops
// that message unread. The core knows: only the refusal is a batch that failed.
// Thread-compatible.
class MessageRead {
 public:
  // kNone: the client has sent no message, or has gone.
  enum class Outcome { kMessage, kNone, kRefused };

  // Reads into `message` and has `done` told of the outcome, on one of gRPC's
  // threads. Once; both outlive the read.
  void Start(grpc_call* call, grpc::ByteBuffer* message,
             std::function<void(Outcome)> done);

 private:
  grpc::internal::CallOpSet<grpc::internal::CallOpRecvMessage<grpc::ByteBuffer>>
      batch_;
  grpc::internal::CallbackWithSuccessTag tag_;
};

}  // namespace convgrad

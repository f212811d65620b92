#include "server/rpc/message_read.h"

#include <utility>

namespace convgrad {

void MessageRead::Start(grpc_call* call, grpc::ByteBuffer* message,
                        std::function<void(Outcome)> done) {
  tag_.Set(
      call,
      [this, done = std::move(done)](bool ok) {
        done(!ok                  ? Outcome::kRefused
             : batch_.got_message ? Outcome::kMessage
                                  : Outcome::kNone);
      },
      &batch_, false);
  batch_.RecvMessage(message);
  batch_.AllowNoMessage();
  batch_.set_core_cq_tag(&tag_);
  grpc::internal::Call batch_call(call, nullptr, nullptr);
  batch_.FillOps(&batch_call);
}

}  // namespace convgrad

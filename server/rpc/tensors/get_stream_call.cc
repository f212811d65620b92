#include "server/rpc/tensors/get_stream_call.h"

#include <utility>

#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "proto/codec/payload_message.h"
#include "proto/stream_slices.h"

namespace convgrad {

absl::Status GetStreamCall::OnMessage() {
  ASSIGN_OR_RETURN(grpc::ByteBuffer header, Begin());
  // All frames together have the time that one message of their size has.
  WatchAnswer(get_->bytes());
  Send(std::move(header));
  return absl::OkStatus();
}

absl::StatusOr<grpc::ByteBuffer> GetStreamCall::Begin() {
  ASSIGN_OR_RETURN(const auto request, Parse<v1::GetTensorsRequest>());
  ASSIGN_OR_RETURN(get_, TensorGet::Find(request, session()));
  RETURN_IF_ERROR(
      reservation()->TryGrow(get_->CopyCapacity() + get_->ListedBytes()));
  paid_ = reservation()->Split(get_->CopyCapacity());
  v1::GetTensorsStreamResponse head;
  *head.mutable_header() = get_->Describe();
  for (v1::KeptTensorInfo& info : *head.mutable_header()->mutable_tensors()) {
    info.mutable_tensor()->mutable_stream();
  }
  return JoinMessage(head, {});
}

void GetStreamCall::Send(absl::StatusOr<grpc::ByteBuffer> message) {
  if (!message.ok()) return End(message.status());
  auto tensor = static_cast<size_t>(next_.tensor());
  while (tensor < get_->count() &&
         next_.byte_offset() == *ByteSize(get_->descriptor(tensor))) {
    ++tensor;
    next_.set_byte_offset(0);
    bytes_.reset();
  }
  next_.set_tensor(static_cast<int32_t>(tensor));
  if (tensor == get_->count()) {
    sample_.times.total = SteadyNow() - arrival();
    return Answer(*std::move(message));
  }
  outgoing_.Swap(&*message);
  HandOver();
  StartWrite(&outgoing_);
}

void GetStreamCall::OnWriteDone(bool ok) {
  HandOver();
  outgoing_.Clear();
  if (!ok || *cancelled() || deadline() <= SteadyNow()) return End(WhyGone());
  if (bytes_) return Send(NextFrame());
  Copy(
      get_->CopiedBytes(next_.tensor()), [this] { return TakeBytes(); },
      [this] { Send(NextFrame()); });
}

absl::Status GetStreamCall::TakeBytes() {
  ASSIGN_OR_RETURN(bytes_, get_->BytesOf(next_.tensor(), services().memory,
                                         &paid_, &sample_.bytes_copied));
  return absl::OkStatus();
}

absl::StatusOr<grpc::ByteBuffer> GetStreamCall::NextFrame() {
  const ByteRange range = FrameAt({0, bytes_->size}, next_.byte_offset());
  v1::GetTensorsStreamResponse head;
  *head.mutable_frame() = next_;
  next_.set_byte_offset(range.end);
  sample_.bytes_sent += range.size();
  return JoinMessage(head, {SliceOver(bytes_->data + range.begin, range.size(),
                                      bytes_->owner)});
}

void GetStreamCall::Settle(const absl::Status& status) {
  get_.reset();
  bytes_.reset();
  paid_.ShrinkTo(0);
  MessageCall::Settle(status);
}

}  // namespace convgrad

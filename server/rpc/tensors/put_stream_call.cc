#include "server/rpc/tensors/put_stream_call.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "proto/stream_slices.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

int64_t SizeOf(const DecodedPut& put) {
  return put.is_streamed ? *ByteSize(*put.descriptor) : 0;
}

}  // namespace

void PutStreamCall::Start() { AwaitTurn(/*may_be_early=*/false); }

void PutStreamCall::OnTurn(const ChangeOrder::Decision& decision) {
  if (!decision.runs()) return EndAs(decision);
  AwaitMemory(kCallOverheadBytes);
}

void PutStreamCall::OnMemory(const absl::Status& status) {
  if (!status.ok()) return End(status);
  if (!header_) {
    AllowClient(kMaxHeadBytes);
    return Read();
  }
  absl::Status begun = Begin();
  if (!begun.ok()) return End(std::move(begun));
  Read();
}

void PutStreamCall::AllowClient(int64_t bytes) {
  client_until_ = SteadyNow() + services().client_watch->AllowedFor(bytes);
}

void PutStreamCall::Read() {
  read_start_ = SteadyNow();
  ExpectMessage(kMaxFrameBytes);
  AwaitClient(client_until_, [this] { StartRead(&message_); });
}

void PutStreamCall::OnSlowClient() {
  HandOver();
  if (deadline() <= SteadyNow()) return End(WhyGone());
  End(DeadlineExceeded(
      "stream", "too little sent for too long",
      "frames as fast as the server's --min_client_rate, after "
      "--unary_idle_timeout at most"));
}

void PutStreamCall::OnReadDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  if (!ok) return OnHalfClose();
  const absl::Time start = SteadyNow();
  sample_.times.receive.Add(read_start_, start);
  if (put_) {
    return Copy(
        static_cast<int64_t>(message_.Length()), [this] { return TakeFrame(); },
        [this, start] {
          // The client gets back the time that its frame waited for a copying
          // thread.
          client_until_ += SteadyNow() - start;
          Read();
        });
  }
  absl::Status status = TakeHeader();
  sample_.times.decode.Add(start, SteadyNow());
  if (!status.ok()) return End(std::move(status));
  AwaitMemory(kCallOverheadBytes + kMaxFrameBytes +
              TensorPut::CapacityFor(*header_));
}

absl::Status PutStreamCall::TakeHeader() {
  v1::PutTensorsStreamRequest head;
  ASSIGN_OR_RETURN(const std::vector<PayloadView> payloads,
                   SplitMessage(&message_, &head, AdmitsHead()));
  RETURN_IF_ERROR(CheckCriticalFields(head));
  ASSIGN_OR_RETURN(header_, DecodePutHeader(head, SizesOf(payloads)));
  RETURN_IF_ERROR(session().KeepTrainerState(head.header().trainer_state(),
                                             "header.trainer_state"));
  RETURN_IF_ERROR(session().table()->memory()->CheckRoom());
  // Refuses tensors that never fit before the call waits for memory.
  return session().table()->memory()->CheckFits(
      TensorPut::CapacityFor(*header_));
}

absl::Status PutStreamCall::Begin() {
  put_.emplace(&session(), &sample_,
               TensorResolver(&session(), services().regions));
  RETURN_IF_ERROR(put_->Begin(*std::move(header_), reservation()));
  session().AdmitNextEarly();
  int64_t bytes = 0;
  for (const DecodedPut& put : put_->puts()) bytes += SizeOf(put);
  AllowClient(bytes);
  SkipWhatIsThere();
  return absl::OkStatus();
}

void PutStreamCall::SkipWhatIsThere() {
  const std::vector<DecodedPut>& puts = put_->puts();
  auto tensor = static_cast<size_t>(next_.tensor());
  while (tensor < puts.size() && next_.byte_offset() == SizeOf(puts[tensor])) {
    ++tensor;
    next_.set_byte_offset(0);
  }
  next_.set_tensor(static_cast<int32_t>(tensor));
}

absl::Status PutStreamCall::TakeFrame() {
  const absl::Cleanup free_head = [this, bytes = reservation()->bytes()] {
    reservation()->ShrinkTo(bytes);
  };
  v1::PutTensorsStreamRequest head;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitMessage(&message_, &head, AdmitsHead()));
  RETURN_IF_ERROR(CheckCriticalFields(head));
  const auto tensor = static_cast<size_t>(next_.tensor());
  if (tensor == put_->puts().size()) {
    return OutOfRange("frame", "one more",
                      "the half-close: every byte has come");
  }
  const ByteRange bytes =
      FrameAt({0, SizeOf(put_->puts()[tensor])}, next_.byte_offset());
  RETURN_IF_ERROR(CheckPutFrame(head, SizesOf(payloads), next_, bytes.size()));
  payloads[0].MoveTo(put_->data(tensor) + bytes.begin);
  sample_.bytes_received += bytes.size();
  next_.set_byte_offset(bytes.end);
  SkipWhatIsThere();
  return absl::OkStatus();
}

void PutStreamCall::OnHalfClose() {
  if (*cancelled() || FailedToRead()) return End(WhyGone());
  failure_ = CheckComplete();
  if (failure_.ok()) {
    return Copy(
        sample_.bytes_copied, [this] { return put_->Finish(); },
        [this] { Commit(); });
  }
  AllowClient(0);
  // As in MessageCall::OnReadDone, frames may be missing because the client has
  // left.
  AwaitClient(client_until_, [this] { StartSendInitialMetadata(); });
}

void PutStreamCall::OnSendInitialMetadataDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  End(ok ? failure_ : WhyGone());
}

absl::Status PutStreamCall::CheckComplete() const {
  if (!put_) {
    return Missing("header", "no message", "a header, then frames");
  }
  const auto tensor = static_cast<size_t>(next_.tensor());
  if (tensor == put_->puts().size()) return absl::OkStatus();
  return Missing(absl::StrCat("tensors[", tensor, "]"),
                 absl::StrCat(next_.byte_offset(), " bytes"),
                 SizeOf(put_->puts()[tensor]));
}

void PutStreamCall::Commit() {
  v1::PutTensorsResponse head;
  head.set_version(session().state().number + 1);
  sample_.times.total = SteadyNow() - arrival();
  Answer(JoinMessage(head, {}));
}

}  // namespace convgrad

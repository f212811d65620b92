#include "server/rpc/tensors/tensor_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "server/memory/shared_bytes.h"

namespace convgrad {
absl::Status PutTensorsCall::CheckTurn() {
  return services().sessions->memory()->CheckRoom();
}

absl::Status PutTensorsCall::OnMessage() {
  {
    const auto measured = sample_.times.decode.Measure();
    v1::PutTensorsRequest head;
    ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(&head));
    ASSIGN_OR_RETURN(std::vector<DecodedPut> puts,
                     DecodePuts(head, SizesOf(payloads)));
    RETURN_IF_ERROR(
        session().KeepTrainerState(head.trainer_state(), "trainer_state"));
    put_.emplace(
        &session(), &sample_,
        TensorResolver(&session(), services().regions, std::move(payloads)));
    RETURN_IF_ERROR(put_->Begin(std::move(puts), reservation()));
  }
  Copy(
      sample_.bytes_copied, [this] { return put_->Finish(); },
      [this] {
        v1::PutTensorsResponse head;
        head.set_version(session().state().number + 1);
        sample_.times.total = SteadyNow() - arrival();
        Finish(absl::OkStatus(), head);
      });
  return absl::OkStatus();
}

void PutTensorsCall::Settle(const absl::Status& status) {
  put_.reset();
  MessageCall::Settle(status);
}

absl::Status GetTensorsCall::OnMessage() {
  ASSIGN_OR_RETURN(const auto head, Parse<v1::GetTensorsRequest>());
  ASSIGN_OR_RETURN(get_, TensorGet::Find(head, session()));
  RETURN_IF_ERROR(CheckMessageBytes("response", get_->bytes()));
  RETURN_IF_ERROR(
      reservation()->TryGrow(get_->CopyCapacity() + get_->ListedBytes()));
  Copy(
      get_->CopyCapacity(), [this] { return Convert(); },
      [this] {
        sample_.times.total = SteadyNow() - arrival();
        Answer(response_);
      });
  return absl::OkStatus();
}

void GetTensorsCall::Settle(const absl::Status& status) {
  get_.reset();
  response_.Clear();
  MessageCall::Settle(status);
}

absl::Status GetTensorsCall::Convert() {
  const TensorGet& get = *get_;
  // The slices of the copies keep this memory reserved while gRPC sends them.
  Reservation paid = reservation()->Split(get.CopyCapacity());
  v1::GetTensorsResponse response = get.Describe();
  std::vector<grpc::Slice> payloads;
  for (size_t i = 0; i < get.count(); ++i) {
    ASSIGN_OR_RETURN(SharedBytes bytes, get.BytesOf(i, services().memory, &paid,
                                                    &sample_.bytes_copied));
    const auto index = static_cast<int>(i);
    *response.mutable_tensors(index)->mutable_tensor() =
        EncodeTensor(get.descriptor(i), index);
    payloads.push_back(
        SliceOver(bytes.data, bytes.size, std::move(bytes.owner)));
  }
  sample_.bytes_sent = get.bytes();
  ASSIGN_OR_RETURN(response_, JoinMessage(response, std::move(payloads)));
  return absl::OkStatus();
}

absl::Status HandleDropTensors(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto head, call->Parse<v1::DropTensorsRequest>());
  RETURN_IF_ERROR(CheckCount(head.names_size(), "names"));
  for (int i = 0; i < head.names_size(); ++i) {
    RETURN_IF_ERROR(call->session()
                        .Find(head.names(i), 0, absl::StrCat("names[", i, "]"))
                        .status());
    call->session().writes()->tensors[head.names(i)] = std::nullopt;
  }
  if (head.all()) {
    for (const auto& [name, tensor] : call->session().state().tensors) {
      call->session().writes()->tensors[name] = std::nullopt;
    }
  }
  RETURN_IF_ERROR(call->session().Promise());
  return call->AnswerWith(v1::DropTensorsResponse());
}

absl::Status HandleListTensors(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto head, call->Parse<v1::ListTensorsRequest>());
  if (head.page_size() < 0) {
    return OutOfRange("page_size", head.page_size(), "at least 0");
  }
  const auto& tensors = call->session().state().tensors;
  auto next = head.after().empty() ? tensors.begin()
                                   : tensors.upper_bound(head.after());
  int64_t count = std::distance(next, tensors.end());
  if (head.page_size() > 0) {
    count = std::min<int64_t>(count, head.page_size());
  }
  // Pays for the message and for the objects that it is made of.
  RETURN_IF_ERROR(call->reservation()->TryGrow(count * kListedBytes));
  v1::ListTensorsResponse list;
  list.set_number(call->session().state().number);
  for (; count > 0; --count, ++next) {
    *list.add_tensors() = InfoOf(next->first, next->second);
  }
  list.set_has_more(next != tensors.end());
  return call->AnswerWith(list);
}

}  // namespace convgrad

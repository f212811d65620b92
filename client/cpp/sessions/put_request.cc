#include "client/cpp/sessions/put_request.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "proto/stream_slices.h"
#include "proto/tensor_digest.h"

namespace convgrad {

absl::StatusOr<PutRequest> PutRequest::Make(std::vector<TensorToPut> tensors,
                                            const SharedRegion* region,
                                            std::string trainer_state) {
  std::vector<Tensor> checked;
  for (TensorToPut& put : tensors) {
    RETURN_IF_ERROR(CheckByteCount(absl::StrCat("'", put.name, "'"), put.bytes,
                                   put.descriptor));
    std::optional<RegionRange> range;
    if (region != nullptr) range = region->RangeOf(put.bytes);
    checked.push_back({.put = std::move(put), .range = std::move(range)});
  }
  return PutRequest(std::move(checked), std::move(trainer_state));
}

v1::HaveTensorsRequest PutRequest::AddDigests() {
  v1::HaveTensorsRequest question;
  for (Tensor& tensor : tensors_) {
    const absl::Span<const std::byte> bytes = tensor.put.bytes;
    tensor.digest =
        DigestOf(tensor.put.descriptor,
                 {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    question.add_digests(tensor.digest);
  }
  return question;
}

absl::Status PutRequest::LeaveOut(const v1::HaveTensorsResponse& answer) {
  if (answer.have_size() != std::ssize(tensors_)) {
    return BadReply("have", absl::StrCat(answer.have_size()),
                    absl::StrCat(tensors_.size()));
  }
  for (int i = 0; i < answer.have_size(); ++i) {
    tensors_[i].is_known = answer.have(i);
  }
  return absl::OkStatus();
}

bool PutRequest::SendAllAfter(const absl::Status& refusal) {
  const std::optional<ErrorDetail> detail = DetailOf(refusal);
  const bool names_digest = absl::IsNotFound(refusal) && detail &&
                            absl::EndsWith(detail->field, ".digest");
  if (!names_digest) return false;
  bool were_left_out = false;
  for (Tensor& tensor : tensors_) {
    were_left_out |= std::exchange(tensor.is_known, false);
  }
  return were_left_out;
}

int64_t PutRequest::sent_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors_) {
    if (tensor.is_sent()) bytes += std::ssize(tensor.put.bytes);
  }
  return bytes;
}

int64_t PutRequest::sent_payloads() const {
  return absl::c_count_if(
      tensors_, [](const Tensor& tensor) { return tensor.is_sent(); });
}

int64_t PutRequest::all_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors_) {
    if (!tensor.range) bytes += std::ssize(tensor.put.bytes);
  }
  return bytes;
}

v1::NamedPut PutRequest::HeadOf(const Tensor& tensor) {
  v1::NamedPut head;
  head.set_name(tensor.put.name);
  head.set_digest(tensor.digest);
  if (tensor.is_known) return head;
  const TensorDescriptor& descriptor = tensor.put.descriptor;
  *head.mutable_tensor() = tensor.range
                               ? EncodeTensor(descriptor, *tensor.range)
                               : EncodeDescriptor(descriptor);
  head.set_groups(descriptor.groups);
  return head;
}

absl::StatusOr<grpc::ByteBuffer> PutRequest::Message(
    const BorrowedSlices& borrowed) const {
  v1::PutTensorsRequest request;
  request.set_trainer_state(trainer_state_);
  std::vector<grpc::Slice> payloads;
  for (const Tensor& tensor : tensors_) {
    v1::NamedPut* head = request.add_tensors();
    *head = HeadOf(tensor);
    if (!tensor.is_sent()) continue;
    head->mutable_tensor()->mutable_inline_()->set_payload_index(
        static_cast<int>(payloads.size()));
    payloads.push_back(borrowed.SliceOf(tensor.put.bytes));
  }
  return JoinMessage(request, std::move(payloads));
}

grpc::ByteBuffer PutRequest::StreamHeader() const {
  v1::PutTensorsStreamRequest message;
  message.mutable_header()->set_trainer_state(trainer_state_);
  for (const Tensor& tensor : tensors_) {
    v1::NamedPut* head = message.mutable_header()->add_tensors();
    *head = HeadOf(tensor);
    if (tensor.is_sent()) head->mutable_tensor()->mutable_stream();
  }
  return *JoinMessage(message, {});
}

Client::Connection::Messages PutRequest::Frames(
    const BorrowedSlices& borrowed) const {
  return [this, &borrowed, has_begun = false, tensor = size_t{0},
          offset = int64_t{0}]() mutable -> std::optional<grpc::ByteBuffer> {
    if (!std::exchange(has_begun, true)) return StreamHeader();
    while (tensor < tensors_.size() &&
           (!tensors_[tensor].is_sent() ||
            offset == std::ssize(tensors_[tensor].put.bytes))) {
      ++tensor;
      offset = 0;
    }
    if (tensor == tensors_.size()) return std::nullopt;
    const absl::Span<const std::byte> all = tensors_[tensor].put.bytes;
    const ByteRange range = FrameAt({0, std::ssize(all)}, offset);
    v1::PutTensorsStreamRequest message;
    message.mutable_frame()->set_tensor(static_cast<int32_t>(tensor));
    message.mutable_frame()->set_byte_offset(offset);
    offset = range.end;
    return *JoinMessage(
        message, {borrowed.SliceOf(all.subspan(range.begin, range.size()))});
  };
}

}  // namespace convgrad

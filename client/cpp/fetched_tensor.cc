#include "client/cpp/tensor_messages.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "client/cpp/call_parts.h"
#include "client/cpp/session_wire.h"
#include "proto/codec.h"
#include "proto/payload_message.h"
#include "proto/stream_codec.h"
#include "proto/stream_slices.h"

namespace convgrad {
namespace {

v1::NamedPut HeadOf(const TensorToPut& tensor) {
  v1::NamedPut put;
  put.set_name(tensor.name);
  *put.mutable_tensor() = EncodeDescriptor(tensor.descriptor);
  put.set_groups(tensor.descriptor.groups);
  return put;
}

// Returns the one tensor that `response` describes, with memory for its bytes.
absl::StatusOr<FetchedTensor> EmptyTensor(
    const v1::NamedGet& wanted, const v1::GetTensorsResponse& response) {
  if (response.tensors_size() != 1) {
    return BadReply("tensors", absl::StrCat(response.tensors_size()), "1");
  }
  FetchedTensor fetched;
  fetched.version = response.tensors(0).version();
  ASSIGN_OR_RETURN(
      fetched.descriptor,
      DecodeTensor(response.tensors(0).tensor(),
                   std::max<int64_t>(1, wanted.groups()), "reply.tensors[0]"));
  ASSIGN_OR_RETURN(fetched.data, AlignedBuffer::Allocate(
                                     ByteSize(fetched.descriptor).value_or(0)));
  return fetched;
}

// The messages of one PutTensorsStream.
class PutFrames {
 public:
  PutFrames(absl::Span<const TensorToPut> tensors, const Loan& loan)
      : tensors_(tensors), loan_(loan) {}

  std::optional<grpc::ByteBuffer> Next() {
    if (!std::exchange(has_begun_, true)) return Header();
    while (tensor_ < tensors_.size() &&
           offset_ == std::ssize(tensors_[tensor_].bytes)) {
      ++tensor_;
      offset_ = 0;
    }
    if (tensor_ == tensors_.size()) return std::nullopt;
    const absl::Span<const std::byte> all = tensors_[tensor_].bytes;
    const ByteRange range = FrameAt({0, std::ssize(all)}, offset_);
    v1::PutTensorsStreamRequest message;
    message.mutable_frame()->set_tensor(static_cast<int32_t>(tensor_));
    message.mutable_frame()->set_byte_offset(offset_);
    offset_ = range.end;
    return *JoinMessage(
        message, {loan_.SliceOf(all.subspan(range.begin, range.size()))});
  }

 private:
  std::optional<grpc::ByteBuffer> Header() const {
    v1::PutTensorsStreamRequest message;
    for (const TensorToPut& tensor : tensors_) {
      v1::NamedPut* put = message.mutable_header()->add_tensors();
      *put = HeadOf(tensor);
      put->mutable_tensor()->mutable_stream();
    }
    return *JoinMessage(message, {});
  }

  const absl::Span<const TensorToPut> tensors_;
  const Loan& loan_;
  bool has_begun_ = false;
  size_t tensor_ = 0;
  int64_t offset_ = 0;
};

}  // namespace

absl::StatusOr<int64_t> BytesToPut(absl::Span<const TensorToPut> tensors) {
  int64_t bytes = 0;
  for (const TensorToPut& tensor : tensors) {
    const int64_t expected = ByteSize(tensor.descriptor).value_or(-1);
    if (std::ssize(tensor.bytes) != expected) {
      return InvalidField(
          Reason::kByteCountMismatch, absl::StrCat("'", tensor.name, "'"),
          absl::StrCat(tensor.bytes.size(), " bytes"),
          absl::StrCat(expected, " bytes, ", ToString(tensor.descriptor)));
    }
    bytes += expected;
  }
  return bytes;
}

absl::StatusOr<grpc::ByteBuffer> PutMessage(
    absl::Span<const TensorToPut> tensors, const Loan& loan) {
  v1::PutTensorsRequest request;
  std::vector<grpc::Slice> payloads;
  for (const TensorToPut& tensor : tensors) {
    v1::NamedPut* put = request.add_tensors();
    *put = HeadOf(tensor);
    put->mutable_tensor()->mutable_inline_()->set_payload_index(
        static_cast<int>(payloads.size()));
    payloads.push_back(loan.SliceOf(tensor.bytes));
  }
  return JoinMessage(request, std::move(payloads));
}

Client::Connection::Messages PutMessages(absl::Span<const TensorToPut> tensors,
                                         const Loan& loan) {
  return [frames = std::make_shared<PutFrames>(tensors, loan)] {
    return frames->Next();
  };
}

absl::StatusOr<FetchedTensor> DecodeFetched(const v1::NamedGet& wanted,
                                            grpc::ByteBuffer* message) {
  v1::GetTensorsResponse response;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitReply(message, &response));
  ASSIGN_OR_RETURN(FetchedTensor fetched, EmptyTensor(wanted, response));
  const auto expected = static_cast<int64_t>(fetched.data.bytes().size());
  if (payloads.size() != 1 || payloads[0].size() != expected) {
    return BadReply(
        "payloads",
        absl::StrCat(payloads.size(), " payloads, ",
                     payloads.empty() ? 0 : payloads[0].size(), " bytes"),
        absl::StrCat("1, ", expected, " bytes"));
  }
  payloads[0].MoveTo(fetched.data.data());
  return fetched;
}

bool IsTooLarge(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = DetailOf(status);
  return detail && detail->reason == Reason::kLimitExceeded &&
         detail->field == "response";
}

void FetchedFrames::Begin() {
  fetched_.reset();
  received_ = 0;
}

absl::Status FetchedFrames::Add(grpc::ByteBuffer* message) {
  v1::GetTensorsStreamResponse response;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitReply(message, &response));
  if (response.has_header() && !fetched_) {
    ASSIGN_OR_RETURN(fetched_, EmptyTensor(wanted_, response.header()));
    return absl::OkStatus();
  }
  const int64_t size = payloads.size() == 1 ? payloads[0].size() : 0;
  const int64_t left =
      fetched_ ? std::ssize(fetched_->data.bytes()) - received_ : 0;
  if (!response.has_frame() || response.frame().tensor() != 0 ||
      response.frame().byte_offset() != received_ || size < 1 || size > left) {
    return BadReply(
        "frame",
        absl::StrCat(response.frame().byte_offset(), " with ", size, " bytes"),
        absl::StrCat(received_, " with at most ", left, " bytes"));
  }
  payloads[0].MoveTo(fetched_->data.data() + received_);
  received_ += size;
  return absl::OkStatus();
}

absl::StatusOr<FetchedTensor> FetchedFrames::Take() {
  if (!fetched_ || received_ != std::ssize(fetched_->data.bytes())) {
    return BadReply("message", absl::StrCat("the end at ", received_),
                    "the whole tensor");
  }
  return *std::move(fetched_);
}

}  // namespace convgrad

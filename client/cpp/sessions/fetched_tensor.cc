#include "client/cpp/sessions/fetched_tensor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

// Returns the tensor that `response` describes, with uninitialized memory for
// its bytes.
absl::StatusOr<FetchedTensor> EmptyTensor(
    const v1::GetTensorsResponse& response) {
  if (response.tensors_size() != 1) {
    return BadReply("tensors", absl::StrCat(response.tensors_size()), "1");
  }
  const v1::KeptTensorInfo& info = response.tensors(0);
  FetchedTensor fetched;
  fetched.version = info.version();
  ASSIGN_OR_RETURN(
      fetched.descriptor,
      DecodeTensor(info.tensor(), std::max<int64_t>(1, info.groups()),
                   "reply.tensors[0]"));
  ASSIGN_OR_RETURN(fetched.data, AlignedBuffer::Allocate(
                                     ByteSize(fetched.descriptor).value_or(0)));
  return fetched;
}

}  // namespace

absl::StatusOr<FetchedTensor> DecodeFetched(grpc::ByteBuffer* message) {
  v1::GetTensorsResponse response;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitReply(message, &response));
  ASSIGN_OR_RETURN(FetchedTensor fetched, EmptyTensor(response));
  const auto expected = std::ssize(fetched.data.bytes());
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

void FetchedFrames::Begin() {
  fetched_.reset();
  received_ = 0;
}

absl::Status FetchedFrames::Add(grpc::ByteBuffer* message) {
  v1::GetTensorsStreamResponse response;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitReply(message, &response));
  if (response.has_header() && !fetched_) {
    ASSIGN_OR_RETURN(fetched_, EmptyTensor(response.header()));
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

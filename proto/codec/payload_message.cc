#include "proto/codec/payload_message.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
absl::StatusOr<std::vector<PayloadView>> SplitMessage(
    grpc::ByteBuffer* message, google::protobuf::Message* head,
    const AdmitHead& admit) {
  // Must outlive the references below (see PayloadView).
  grpc::ByteBuffer received;
  received.Swap(message);
  ASSIGN_OR_RETURN(MessageParts parts,
                   SplitParts(received, {kMaxHeadBytes, kMaxPayloads}));
  if (admit != nullptr) RETURN_IF_ERROR(admit(std::ssize(parts.head)));
  if (!head->ParseFromString(parts.head)) {
    return Malformed("message", "bytes that protobuf can't parse",
                     head->GetDescriptor()->full_name());
  }
  return std::move(parts.payloads);
}

absl::StatusOr<grpc::ByteBuffer> JoinMessage(
    const google::protobuf::Message& head, std::vector<grpc::Slice> payloads) {
  std::string prefix = head.SerializeAsString();
  std::vector<grpc::Slice> slices;
  int64_t total = 0;
  auto append = [&](grpc::Slice slice) {
    total += std::ssize(slice);
    slices.push_back(std::move(slice));
  };
  for (grpc::Slice& payload : payloads) {
    AppendVarint(kPayloadsTag, &prefix);
    AppendVarint(payload.size(), &prefix);
    append(grpc::Slice(prefix));
    append(std::move(payload));
    prefix.clear();
  }
  if (slices.empty()) append(grpc::Slice(prefix));
  if (total > kMaxMessageBytes) {
    return LimitExceeded("message", absl::StrCat(total, " bytes"),
                         absl::StrCat("at most ", kMaxMessageBytes));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::vector<int64_t> SizesOf(absl::Span<const PayloadView> payloads) {
  std::vector<int64_t> sizes;
  for (const PayloadView& payload : payloads) sizes.push_back(payload.size());
  return sizes;
}

}  // namespace convgrad

#include "proto/codec/tensor_source.h"

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {

KeptName DecodeKeptName(const v1::Tensor::Kept& message) {
  return {message.session_id(), message.tensor_id(), message.version()};
}

absl::Status NamedPayloads::Name(int index, const TensorDescriptor& tensor,
                                 const std::string& path) {
  const auto count = std::ssize(bytes_);
  if (index < 0 || index >= count) {
    return OutOfRange(path + ".inline.payload_index", index,
                      absl::StrCat("an index into the ", count, " payloads"));
  }
  is_named_[index] = true;
  const int64_t expected = ByteSize(tensor).value_or(0);
  if (bytes_[index] == expected) return absl::OkStatus();
  return InvalidField(
      Reason::kByteCountMismatch, absl::StrCat("payloads[", index, "]"),
      absl::StrCat(bytes_[index], " bytes"),
      absl::StrCat(expected, " bytes for ", path, ", ", ToString(tensor)));
}

absl::Status NamedPayloads::CheckAll() const {
  for (size_t i = 0; i < is_named_.size(); ++i) {
    if (is_named_[i]) continue;
    return Malformed(absl::StrCat("payloads[", i, "]"),
                     absl::StrCat(bytes_[i], " bytes that no tensor names"),
                     absl::StrCat("a tensor with inline.payload_index ", i));
  }
  return absl::OkStatus();
}

}  // namespace convgrad

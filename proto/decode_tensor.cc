// The wire's tensors to the core's descriptors, and the check of their bytes.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "proto/codec_enums.h"
#include "proto/decode_operation.h"

namespace convgrad {
namespace {

std::string Bytes(int64_t bytes) { return absl::StrCat(bytes, " bytes"); }

absl::Status Unsupported(const std::string& path, absl::string_view found,
                         absl::string_view expected) {
  return MakeError(
      absl::StatusCode::kUnimplemented,
      {Reason::kUnsupported, path, std::string(found), std::string(expected)});
}

// Checks a range of a registered region, source or destination.
template <typename Region>
absl::Status CheckRegion(const Region& region, int64_t bytes,
                         const std::string& path) {
  if (region.byte_offset() < 0) {
    return InvalidField(Reason::kOutOfRange, absl::StrCat(path, ".byte_offset"),
                        absl::StrCat(region.byte_offset()), "at least 0");
  }
  if (region.byte_length() != bytes) {
    return InvalidField(Reason::kByteCountMismatch,
                        absl::StrCat(path, ".byte_length"),
                        Bytes(region.byte_length()), Bytes(bytes));
  }
  if (CheckedAdd(region.byte_offset(), region.byte_length())) {
    return absl::OkStatus();
  }
  return InvalidField(Reason::kOverflow, absl::StrCat(path, ".byte_offset"),
                      absl::StrCat(region.byte_offset()),
                      "an end below 2^63 bytes");
}

// Walks over a request's tensors and keeps what they say about payloads.
class ByteChecker {
 public:
  ByteChecker(absl::Span<const int64_t> payload_bytes,
              DecodedOperation* decoded)
      : payload_bytes_(payload_bytes),
        named_(payload_bytes.size(), false),
        decoded_(*decoded) {}

  absl::Status CheckOperand(const v1::Tensor& tensor, Operand operand) {
    const std::string path = OperandPath(operand);
    const TensorDescriptor& descriptor = *decoded_.operation.operand(operand);
    const int64_t bytes = ByteSize(descriptor).value_or(0);
    switch (tensor.source_case()) {
      case v1::Tensor::kInline:
        decoded_.payload_index[static_cast<size_t>(operand)] =
            tensor.inline_().payload_index();
        return CheckPayload(tensor.inline_().payload_index(), descriptor, path);
      case v1::Tensor::kRegion:
        NoteUnsupported(Unsupported(path + ".region", "", "inline"));
        return CheckRegion(tensor.region(), bytes, path + ".region");
      case v1::Tensor::kKept:
        NoteUnsupported(Unsupported(path + ".kept", "", "inline"));
        return absl::OkStatus();
      case v1::Tensor::kStepResult:
        NoteUnsupported(Unsupported(path + ".step_result", "", "inline"));
        return absl::OkStatus();
      case v1::Tensor::SOURCE_NOT_SET:
        break;
    }
    return InvalidField(Reason::kMissing, path, "no source",
                        "inline, region, kept or step_result");
  }

  absl::Status CheckResult(const v1::ResultRequest& request, int index) {
    const std::string path = ResultPath(index);
    const int64_t bytes =
        ByteSize(decoded_.operation.results[index].descriptor).value_or(0);
    if (request.store() == v1::ResultRequest::STORE_ADD) {
      NoteUnsupported(
          Unsupported(path + ".store", "STORE_ADD", "STORE_OVERWRITE"));
    }
    if (request.has_kept()) {
      NoteUnsupported(Unsupported(path + ".kept", "", "inline"));
    }
    if (!request.has_region()) return absl::OkStatus();
    NoteUnsupported(Unsupported(path + ".region", "", "inline"));
    return CheckRegion(request.region(), bytes, path + ".region");
  }

  absl::Status CheckAllNamed() const {
    for (size_t i = 0; i < named_.size(); ++i) {
      if (named_[i]) continue;
      return InvalidField(
          Reason::kMalformed, absl::StrCat("payloads[", i, "]"),
          absl::StrCat(payload_bytes_[i], " bytes that no tensor names"),
          absl::StrCat("a tensor with inline.payload_index ", i));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckPayload(int32_t index, const TensorDescriptor& descriptor,
                            const std::string& path) {
    const int64_t count = static_cast<int64_t>(payload_bytes_.size());
    if (index < 0 || index >= count) {
      return InvalidField(
          Reason::kOutOfRange, path + ".inline.payload_index",
          absl::StrCat(index),
          absl::StrCat("an index into the ", count, " payloads"));
    }
    named_[index] = true;
    const int64_t expected = ByteSize(descriptor).value_or(0);
    if (payload_bytes_[index] == expected) return absl::OkStatus();
    return InvalidField(Reason::kByteCountMismatch,
                        absl::StrCat("payloads[", index, "]"),
                        Bytes(payload_bytes_[index]),
                        absl::StrCat(Bytes(expected), " for ", path, ", ",
                                     ToString(descriptor)));
  }

  void NoteUnsupported(absl::Status status) {
    if (decoded_.support.ok()) decoded_.support = std::move(status);
  }

  const absl::Span<const int64_t> payload_bytes_;
  std::vector<bool> named_;
  DecodedOperation& decoded_;
};

}  // namespace

absl::StatusOr<Dims> DecodeDims(
    const google::protobuf::RepeatedField<int64_t>& dims,
    const std::string& path) {
  if (dims.size() > kMaxDims) {
    return InvalidField(Reason::kOutOfRange, path,
                        absl::StrCat(dims.size(), " entries"),
                        absl::StrCat("at most ", kMaxDims));
  }
  return Dims(dims.begin(), dims.end());
}

absl::Status CheckC0Known(int32_t c0, const std::string& path) {
  if (c0 == 0 || c0 == 8 || c0 == 16) return absl::OkStatus();
  return InvalidField(Reason::kOutOfRange, path, absl::StrCat(c0),
                      "0 (the default), 8 or 16");
}

absl::StatusOr<TensorDescriptor> DecodeTensor(const v1::Tensor& message,
                                              int64_t groups,
                                              absl::string_view role) {
  const std::string path(role);
  RETURN_IF_ERROR(CheckKnownEnums(message, absl::StrCat(path, ".")));
  RETURN_IF_ERROR(CheckTensorEnumsGiven(message, /*is_bias=*/false, path));
  TensorDescriptor tensor;
  tensor.dtype = *DecodeDataType(message.dtype());
  tensor.layout = *DecodeLayout(message.layout());
  ASSIGN_OR_RETURN(tensor.dims, DecodeDims(message.dims(), path + ".dims"));
  const bool blocked = !IsRowMajor(tensor.layout);
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    // A block's arithmetic divides by channels; only a batch may be 0 there.
    const int64_t least = blocked && i > 0 ? 1 : 0;
    if (tensor.dims[i] >= least) continue;
    return InvalidField(
        Reason::kOutOfRange, absl::StrCat(path, ".dims[", i, "]"),
        absl::StrCat(tensor.dims[i]), absl::StrCat("at least ", least));
  }
  if (blocked) {
    RETURN_IF_ERROR(CheckC0Known(message.c0(), path + ".c0"));
    tensor.c0 = message.c0() == 0 ? DefaultC0(tensor.dtype) : message.c0();
    if (tensor.layout == Layout::kFractalZ3D) tensor.groups = groups;
  }
  const bool divides = !tensor.dims.empty() && groups >= 1 &&
                       tensor.dims[0] >= groups && tensor.dims[0] % groups == 0;
  if ((blocked && tensor.dims.size() < 2) ||
      (tensor.layout == Layout::kFractalZ3D && !divides)) {
    return InvalidField(Reason::kShapeMismatch, path + ".dims",
                        ToString(absl::MakeConstSpan(tensor.dims)),
                        absl::StrCat("dims that fit ", NameOf(tensor.layout),
                                     " of ", groups, " groups"));
  }
  if (ByteSize(tensor)) return tensor;
  return InvalidField(Reason::kOverflow, path + ".dims",
                      ToString(absl::MakeConstSpan(tensor.dims)),
                      "a packed size below 2^63 bytes");
}

absl::Status DecodeBytes(const v1::ConvOperation& message,
                         absl::Span<const int64_t> payload_bytes,
                         DecodedOperation* decoded) {
  ByteChecker checker(payload_bytes, decoded);
  for (Operand operand : kAllOperands) {
    const v1::Tensor* tensor = FindTensor(message.operands(), operand);
    if (tensor == nullptr) continue;
    RETURN_IF_ERROR(checker.CheckOperand(*tensor, operand));
  }
  for (int i = 0; i < message.results_size(); ++i) {
    RETURN_IF_ERROR(checker.CheckResult(message.results(i), i));
  }
  return checker.CheckAllNamed();
}

}  // namespace convgrad

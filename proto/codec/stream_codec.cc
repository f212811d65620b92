#include "proto/codec/stream_codec.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/codec_enums.h"
#include "proto/codec/decode_operation.h"

namespace convgrad {
namespace {

std::string OperandsOf(const ConvOperation& operation) {
  std::string names;
  for (Operand which : kAllOperands) {
    if (!operation.operand(which)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", NameOf(which));
  }
  return names;
}

}  // namespace

absl::StatusOr<StreamOpening> DecodeOpening(
    const v1::ConvStreamRequest& message, Direction direction,
    absl::Span<const int64_t> payload_bytes) {
  RETURN_IF_ERROR(CheckPart(message, /*is_header=*/true));
  RETURN_IF_ERROR(CheckPayloadCount(payload_bytes, 0));
  const v1::StreamHeader& header = message.header();
  StreamOpening opening;
  ASSIGN_OR_RETURN(opening.options, DecodeOptions(header.options()));
  ASSIGN_OR_RETURN(
      opening.decoded,
      DecodeOperation(header.operation(), direction, {}, Carrier::kStream));
  opening.slice_items = header.slice_items();
  if (opening.slice_items < 0) {
    return OutOfRange("slice_items", opening.slice_items, "at least 0");
  }
  if (opening.options.self_check && opening.decoded.support.ok()) {
    opening.decoded.support =
        Unsupported("options.self_check", "a self-check of a stream",
                    "none: it needs all of the tensors at once");
  }
  return opening;
}

absl::StatusOr<OperandPiece> DecodeFrame(
    const v1::ConvStreamRequest& message, const ConvOperation& operation,
    absl::Span<const int64_t> payload_bytes) {
  RETURN_IF_ERROR(CheckPart(message, /*is_header=*/false));
  RETURN_IF_ERROR(CheckPayloadCount(payload_bytes, 1));
  const v1::OperandFrame& frame = message.frame();
  RETURN_IF_ERROR(CheckKnownEnums(frame, "frame."));
  const std::optional<Operand> which = DecodeOperand(frame.which());
  if (!which || !operation.operand(*which)) {
    return OutOfRange(
        "frame.which", which ? NameOf(*which) : v1::Operand_Name(frame.which()),
        absl::StrCat("what the operation needs: ", OperandsOf(operation)));
  }
  const int64_t size = payload_bytes[0];
  if (size < 1 || size > kMaxFrameBytes) {
    return InvalidField(Reason::kByteCountMismatch, "payloads[0]",
                        absl::StrCat(size, " bytes"),
                        absl::StrCat("1 to ", kMaxFrameBytes, " in a frame"));
  }
  const int64_t begin = frame.byte_offset();
  const int64_t total = ByteSize(*operation.operand(*which)).value_or(0);
  if (begin < 0 || size > total || begin > total - size) {
    return OutOfRange(
        "frame.byte_offset", absl::StrCat(begin, " with ", size, " bytes"),
        absl::StrCat("inside ", NameOf(*which), ", ", total, " bytes"));
  }
  return OperandPiece{*which, {begin, begin + size}};
}

v1::ConvStreamRequest EncodeOpening(const ConvOperation& operation,
                                    const CallOptions& options,
                                    int64_t slice_items) {
  v1::ConvStreamRequest message;
  v1::StreamHeader* header = message.mutable_header();
  *header->mutable_operation() = EncodeOperation(operation);
  for (Operand which : kAllOperands) {
    if (!operation.operand(which)) continue;
    MutableTensor(header->mutable_operation()->mutable_operands(), which)
        ->mutable_stream();
  }
  *header->mutable_options() = EncodeOptions(options);
  header->set_slice_items(slice_items);
  return message;
}

v1::ConvStreamRequest EncodeFrame(Operand which, int64_t byte_offset) {
  v1::ConvStreamRequest message;
  message.mutable_frame()->set_which(EncodeOperand(which));
  message.mutable_frame()->set_byte_offset(byte_offset);
  return message;
}

v1::ConvStreamResponse EncodeFrame(Result which, int64_t byte_offset) {
  v1::ConvStreamResponse message;
  message.mutable_frame()->set_which(EncodeResult(which));
  message.mutable_frame()->set_byte_offset(byte_offset);
  return message;
}

v1::Tensor EncodeStreamTensor(const TensorDescriptor& tensor) {
  v1::Tensor message = EncodeTensor(tensor, 0);
  message.mutable_stream();
  return message;
}

}  // namespace convgrad

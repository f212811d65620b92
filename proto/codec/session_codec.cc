#include "proto/codec/session_codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/codec.h"
#include "proto/codec/decode_operation.h"

namespace convgrad {
namespace {

absl::StatusOr<DecodedPut> DecodePut(const v1::NamedPut& message,
                                     Carrier carrier, NamedPayloads* payloads,
                                     const std::string& path) {
  DecodedPut put;
  put.name = message.name();
  put.digest = message.digest();
  if (!put.digest.empty() && put.digest.size() != 32) {
    return OutOfRange(path + ".digest",
                      absl::StrCat(put.digest.size(), " bytes"),
                      "0 or 32 bytes");
  }
  const v1::Tensor& tensor = message.tensor();
  const std::string tensor_path = path + ".tensor";
  if (tensor.source_case() == v1::Tensor::SOURCE_NOT_SET) {
    if (!put.digest.empty()) return put;
    return Missing(tensor_path, "no source, no digest",
                   "inline, region, or the digest of what was put before");
  }
  if (message.groups() < 0) {
    return OutOfRange(path + ".groups", message.groups(), "at least 0");
  }
  ASSIGN_OR_RETURN(
      put.descriptor,
      DecodeTensor(tensor, message.groups() == 0 ? 1 : message.groups(),
                   tensor_path));
  if (carrier == Carrier::kStream && tensor.has_stream()) {
    put.is_streamed = true;
    return put;
  }
  if (tensor.has_region() ||
      (tensor.has_inline_() && carrier == Carrier::kMessage)) {
    RETURN_IF_ERROR(DecodePlace(tensor, *put.descriptor, tensor_path, payloads,
                                &put.source));
    return put;
  }
  return Unsupported(
      tensor_path + ".source", "another source",
      absl::StrCat(carrier == Carrier::kStream ? "stream" : "inline",
                   ", region, or a digest alone"));
}

// Sets the slice of the kept tensor that the client wants.
absl::Status SetSource(const v1::NamedGet& request,
                       const TensorDescriptor& kept, const std::string& path,
                       WantedTensor* wanted) {
  wanted->source = kept;
  if (request.first_item() == 0 && request.items() == 0) {
    return absl::OkStatus();
  }
  if (kept.dims.empty() || kept.layout == Layout::kXIO ||
      kept.layout == Layout::kFractalZ3D) {
    return InvalidField(Reason::kLayoutMismatch, path + ".items",
                        absl::StrCat("a slice of ", ToString(kept)),
                        "a tensor whose first axis is the outermost");
  }
  // Uses max, because the smallest int64_t can't be subtracted.
  const int64_t left =
      kept.dims[0] - std::max<int64_t>(request.first_item(), 0);
  if (request.first_item() < 0 || left < 0 || request.items() < 0 ||
      request.items() > left) {
    return OutOfRange(
        path + ".items",
        absl::StrCat(request.items(), " from ", request.first_item()),
        absl::StrCat("items within the ", kept.dims[0], " that there are"));
  }
  TensorDescriptor before = kept;
  before.dims[0] = request.first_item();
  wanted->first_byte = *ByteSize(before);
  wanted->source.dims[0] = request.items() == 0 ? left : request.items();
  return absl::OkStatus();
}

// Returns whether a Reorder can convert `from` to `to`.
bool CanBring(const TensorDescriptor& from, const TensorDescriptor& to) {
  if (to == from) return true;
  if (!IsFloating(from.dtype) || !IsFloating(to.dtype)) return false;
  if (to.layout == from.layout && IsRowMajor(from.layout)) return true;
  const bool same_groups = to.layout != Layout::kFractalZ3D ||
                           from.layout != Layout::kFractalZ3D ||
                           to.groups == from.groups;
  return IsWeightLayout(to.layout) == IsWeightLayout(from.layout) &&
         same_groups && from.dims.size() >= 2;
}

std::string TextOf(const v1::TensorFrame& frame, int64_t bytes) {
  return absl::StrCat("tensor ", frame.tensor(), " from byte ",
                      frame.byte_offset(), ", ", bytes, " bytes");
}

}  // namespace

absl::Status CheckCount(int tensors, absl::string_view field) {
  if (tensors <= kMaxNamedTensors) return absl::OkStatus();
  return OutOfRange(field, absl::StrCat(tensors, " tensors"),
                    absl::StrCat("at most ", kMaxNamedTensors));
}

absl::StatusOr<std::vector<DecodedPut>> DecodePuts(
    const v1::PutTensorsRequest& request,
    absl::Span<const int64_t> payload_bytes, Carrier carrier) {
  RETURN_IF_ERROR(CheckCount(request.tensors_size(), "tensors"));
  NamedPayloads payloads(payload_bytes);
  std::vector<DecodedPut> puts;
  for (int i = 0; i < request.tensors_size(); ++i) {
    const std::string path = absl::StrCat("tensors[", i, "]");
    ASSIGN_OR_RETURN(puts.emplace_back(),
                     DecodePut(request.tensors(i), carrier, &payloads, path));
  }
  RETURN_IF_ERROR(payloads.CheckAll());
  return puts;
}

absl::StatusOr<std::vector<DecodedPut>> DecodePutHeader(
    const v1::PutTensorsStreamRequest& message,
    absl::Span<const int64_t> payload_bytes) {
  RETURN_IF_ERROR(CheckPart(message, /*is_header=*/true));
  RETURN_IF_ERROR(CheckPayloadCount(payload_bytes, 0));
  if (message.header().payloads_size() > 0) {
    return Malformed("header.payloads", message.header().payloads_size(),
                     "none: bytes come in frames");
  }
  return DecodePuts(message.header(), {}, Carrier::kStream);
}

absl::Status CheckPutFrame(const v1::PutTensorsStreamRequest& message,
                           absl::Span<const int64_t> payload_bytes,
                           const v1::TensorFrame& expected, int64_t bytes) {
  RETURN_IF_ERROR(CheckPart(message, /*is_header=*/false));
  RETURN_IF_ERROR(CheckPayloadCount(payload_bytes, 1));
  const v1::TensorFrame& frame = message.frame();
  if (frame.tensor() == expected.tensor() &&
      frame.byte_offset() == expected.byte_offset() &&
      payload_bytes[0] == bytes) {
    return absl::OkStatus();
  }
  return OutOfRange("frame", TextOf(frame, payload_bytes[0]),
                    TextOf(expected, bytes));
}

absl::StatusOr<WantedTensor> DecodeWanted(const v1::NamedGet& request,
                                          const TensorDescriptor& kept,
                                          const std::string& path) {
  WantedTensor wanted;
  RETURN_IF_ERROR(SetSource(request, kept, path, &wanted));
  v1::Tensor message = EncodeDescriptor(wanted.source);
  if (request.dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    message.set_dtype(request.dtype());
    // c0 is the default of the new dtype unless the request names one.
    message.set_c0(0);
  }
  if (request.layout() != v1::LAYOUT_UNSPECIFIED) {
    message.set_layout(request.layout());
  }
  if (request.c0() != 0) message.set_c0(request.c0());
  const int64_t groups = request.groups() == 0 ? kept.groups : request.groups();
  ASSIGN_OR_RETURN(wanted.descriptor, DecodeTensor(message, groups, path));
  if (CanBring(wanted.source, wanted.descriptor)) return wanted;
  return InvalidField(
      Reason::kLayoutMismatch, path + ".layout", ToString(wanted.descriptor),
      absl::StrCat("a layout and dtype that ", ToString(wanted.source),
                   " can be brought to"));
}

}  // namespace convgrad

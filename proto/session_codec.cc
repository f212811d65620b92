#include "proto/session_codec.h"

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "proto/codec.h"
#include "proto/codec_enums.h"
#include "proto/decode_operation.h"

namespace convgrad {
namespace {

absl::Status CheckPayload(const DecodedPut& put,
                          absl::Span<const int64_t> payload_bytes,
                          const std::string& path) {
  const auto count = static_cast<int64_t>(payload_bytes.size());
  if (put.payload_index < 0 || put.payload_index >= count) {
    return InvalidField(Reason::kOutOfRange, path + ".inline.payload_index",
                        absl::StrCat(put.payload_index),
                        absl::StrCat("an index into the ", count, " payloads"));
  }
  const int64_t expected = *ByteSize(*put.descriptor);
  if (payload_bytes[put.payload_index] == expected) return absl::OkStatus();
  return InvalidField(Reason::kByteCountMismatch,
                      absl::StrCat("payloads[", put.payload_index, "]"),
                      absl::StrCat(payload_bytes[put.payload_index], " bytes"),
                      absl::StrCat(expected, " bytes for ", path, ", ",
                                   ToString(*put.descriptor)));
}

absl::StatusOr<DecodedPut> DecodePut(const v1::NamedPut& message,
                                     absl::Span<const int64_t> payload_bytes,
                                     const std::string& path) {
  DecodedPut put;
  put.name = message.name();
  put.digest = message.digest();
  if (!put.digest.empty() && put.digest.size() != 32) {
    return InvalidField(Reason::kOutOfRange, path + ".digest",
                        absl::StrCat(put.digest.size(), " bytes"),
                        "0 or 32 bytes");
  }
  const v1::Tensor& tensor = message.tensor();
  const std::string tensor_path = path + ".tensor";
  if (tensor.source_case() == v1::Tensor::SOURCE_NOT_SET) {
    if (!put.digest.empty()) return put;
    return InvalidField(Reason::kMissing, tensor_path, "no source, no digest",
                        "inline, region, or the digest of what was put before");
  }
  if (message.groups() < 0) {
    return InvalidField(Reason::kOutOfRange, path + ".groups",
                        absl::StrCat(message.groups()), "at least 0");
  }
  ASSIGN_OR_RETURN(
      put.descriptor,
      DecodeTensor(tensor, message.groups() == 0 ? 1 : message.groups(),
                   tensor_path));
  if (tensor.has_inline_()) {
    put.payload_index = tensor.inline_().payload_index();
    RETURN_IF_ERROR(CheckPayload(put, payload_bytes, tensor_path));
    return put;
  }
  if (tensor.has_region()) {
    ASSIGN_OR_RETURN(put.region,
                     DecodeRange(tensor.region(), *ByteSize(*put.descriptor),
                                 tensor_path + ".region"));
    return put;
  }
  return MakeError(absl::StatusCode::kUnimplemented,
                   {Reason::kUnsupported, tensor_path + ".source",
                    "another source", "inline, region, or a digest alone"});
}

}  // namespace

absl::StatusOr<std::vector<DecodedPut>> DecodePuts(
    const v1::PutTensorsRequest& request,
    absl::Span<const int64_t> payload_bytes) {
  if (request.tensors_size() > kMaxNamedTensors) {
    return InvalidField(Reason::kOutOfRange, "tensors",
                        absl::StrCat(request.tensors_size(), " tensors"),
                        absl::StrCat("at most ", kMaxNamedTensors));
  }
  std::vector<bool> is_named(payload_bytes.size(), false);
  std::vector<DecodedPut> puts;
  for (int i = 0; i < request.tensors_size(); ++i) {
    const std::string path = absl::StrCat("tensors[", i, "]");
    ASSIGN_OR_RETURN(DecodedPut put,
                     DecodePut(request.tensors(i), payload_bytes, path));
    if (put.payload_index >= 0) is_named[put.payload_index] = true;
    puts.push_back(std::move(put));
  }
  for (size_t i = 0; i < is_named.size(); ++i) {
    if (is_named[i]) continue;
    return InvalidField(
        Reason::kMalformed, absl::StrCat("payloads[", i, "]"),
        absl::StrCat(payload_bytes[i], " bytes that no tensor names"),
        absl::StrCat("a tensor with inline.payload_index ", i));
  }
  return puts;
}

absl::StatusOr<TensorDescriptor> DecodeWanted(const v1::NamedGet& wanted,
                                              const TensorDescriptor& kept,
                                              const std::string& path) {
  v1::Tensor message = EncodeDescriptor(kept);
  if (wanted.dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    message.set_dtype(wanted.dtype());
    // The default of this dtype, unless the request names one.
    message.set_c0(0);
  }
  if (wanted.layout() != v1::LAYOUT_UNSPECIFIED) {
    message.set_layout(wanted.layout());
  }
  if (wanted.c0() != 0) message.set_c0(wanted.c0());
  const int64_t groups = wanted.groups() == 0 ? kept.groups : wanted.groups();
  ASSIGN_OR_RETURN(TensorDescriptor tensor,
                   DecodeTensor(message, groups, path));
  if (tensor == kept) return tensor;
  const bool fits =
      IsWeightLayout(tensor.layout) == IsWeightLayout(kept.layout) &&
      (tensor.layout != Layout::kFractalZ3D ||
       kept.layout != Layout::kFractalZ3D || tensor.groups == kept.groups) &&
      kept.dims.size() >= 2;
  if (fits || (tensor.layout == kept.layout && IsRowMajor(kept.layout))) {
    return tensor;
  }
  return InvalidField(
      Reason::kLayoutMismatch, path + ".layout", NameOf(tensor.layout),
      absl::StrCat("a layout that ", ToString(kept), " can be brought to"));
}

}  // namespace convgrad

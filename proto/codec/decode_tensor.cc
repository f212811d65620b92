// Decodes the wire's tensors to the core's descriptors.
#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/codec_enums.h"
#include "proto/codec/decode_operation.h"

namespace convgrad {

absl::StatusOr<Dims> DecodeDims(
    const google::protobuf::RepeatedField<int64_t>& dims,
    const std::string& path) {
  if (dims.size() > kMaxDims) {
    return OutOfRange(path, absl::StrCat(dims.size(), " entries"),
                      absl::StrCat("at most ", kMaxDims));
  }
  return Dims(dims.begin(), dims.end());
}

absl::Status CheckC0Known(int32_t c0, const std::string& path) {
  if (c0 == 0 || c0 == 8 || c0 == 16) return absl::OkStatus();
  return OutOfRange(path, c0, "0 (the default), 8 or 16");
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
    // Blocked layouts divide by the channels, so only the batch may be 0.
    const int64_t least = blocked && i > 0 ? 1 : 0;
    if (tensor.dims[i] >= least) continue;
    return OutOfRange(absl::StrCat(path, ".dims[", i, "]"), tensor.dims[i],
                      absl::StrCat("at least ", least));
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
    return ShapeMismatch(path + ".dims",
                         ToString(absl::MakeConstSpan(tensor.dims)),
                         absl::StrCat("dims that fit ", NameOf(tensor.layout),
                                      " of ", groups, " groups"));
  }
  if (ByteSize(tensor)) return tensor;
  return InvalidField(Reason::kOverflow, path + ".dims",
                      ToString(absl::MakeConstSpan(tensor.dims)),
                      "a packed size below 2^63 bytes");
}

}  // namespace convgrad

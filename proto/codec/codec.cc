// Implements the encoding of core values as messages, and of options.
#include "proto/codec/codec.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/codec_enums.h"
#include "proto/codec/decode_operation.h"

namespace convgrad {
namespace {

constexpr size_t kRequestIdBytes = 16;

// Returns "onednn" for BACKEND_CHOICE_ONEDNN.
std::string NameOf(int choice) {
  return absl::AsciiStrToLower(
      ShortName(*v1::BackendChoice_descriptor(), choice));
}

v1::ConvProblem EncodeProblem(const ConvProblem& problem) {
  v1::ConvProblem message;
  for (int64_t extent : InputDims(problem)) message.add_input_dims(extent);
  message.set_out_channels(problem.out_channels);
  message.set_groups(problem.groups);
  message.set_transposed(problem.transposed);
  message.set_padding(v1::PADDING_EXPLICIT);
  message.set_activation(problem.relu ? v1::ACTIVATION_RELU
                                      : v1::ACTIVATION_NONE);
  for (const SpatialAxis& axis : problem.axes) {
    message.add_kernel(axis.kernel);
    message.add_stride(axis.stride);
    message.add_dilation(axis.dilation);
    message.add_pad_begin(axis.pad_begin);
    message.add_pad_end(axis.pad_end);
    message.add_output_dims(axis.out);
    if (problem.transposed) message.add_output_padding(axis.output_padding);
  }
  return message;
}

template <typename Message>
void EncodeRegion(const RegionRange& range, Message* message) {
  message->set_region_id(range.region_id);
  message->set_byte_offset(range.byte_offset);
  message->set_byte_length(range.byte_length);
}

v1::ResultRequest EncodeResultRequest(const ResultRequest& request) {
  v1::ResultRequest message;
  message.set_which(EncodeResult(request.which));
  message.set_dtype(EncodeDataType(request.descriptor.dtype));
  message.set_layout(EncodeLayout(request.descriptor.layout));
  message.mutable_inline_();
  message.set_store(v1::ResultRequest::STORE_OVERWRITE);
  if (request.scale != 1) message.set_scale(request.scale);
  if (!IsRowMajor(request.descriptor.layout)) {
    message.set_c0(static_cast<int32_t>(request.descriptor.c0));
  }
  if (request.which == Result::kGradBias) {
    auto* dims = message.mutable_bias_dims();
    for (int64_t extent : request.descriptor.dims) dims->add_dim(extent);
  }
  return message;
}

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  const auto& choices = *v1::BackendChoice_descriptor();
  for (int i = 1; i < choices.value_count(); ++i) {
    names.push_back(NameOf(choices.value(i)->number()));
  }
  return names;
}

absl::StatusOr<CallOptions> DecodeOptions(const v1::Options& message) {
  RETURN_IF_ERROR(CheckKnownEnums(message, "options."));
  CallOptions options;
  if (message.backend() > v1::BACKEND_CHOICE_AUTO) {
    options.backend = NameOf(message.backend());
  }
  if (message.has_deterministic()) {
    options.deterministic = message.deterministic();
  }
  options.self_check = message.self_check();
  options.count_nonfinite = message.count_nonfinite();
  options.request_id = message.request_id();
  const size_t length = options.request_id.size();
  if (length == 0 || length == kRequestIdBytes) return options;
  return OutOfRange("options.request_id", absl::StrCat(length, " bytes"),
                    "0 or 16 bytes");
}

v1::ConvOperation EncodeOperation(const ConvOperation& operation,
                                  const RegionPlaces& regions) {
  v1::ConvOperation message;
  *message.mutable_problem() = EncodeProblem(operation.problem);
  int payload_index = 0;
  for (Operand operand : kAllOperands) {
    const auto& tensor = operation.operand(operand);
    if (!tensor) continue;
    const auto& range = regions.operands[PositionOf(operand)];
    *MutableTensor(message.mutable_operands(), operand) =
        range ? EncodeTensor(*tensor, *range)
              : EncodeTensor(*tensor, payload_index++);
  }
  for (size_t i = 0; i < operation.results.size(); ++i) {
    v1::ResultRequest* request = message.add_results();
    *request = EncodeResultRequest(operation.results[i]);
    if (i < regions.results.size() && regions.results[i]) {
      EncodeRegion(*regions.results[i], request->mutable_region());
    }
  }
  return message;
}

v1::Options EncodeOptions(const CallOptions& options) {
  v1::Options message;
  v1::BackendChoice choice = v1::BACKEND_CHOICE_AUTO;
  v1::BackendChoice_Parse(
      absl::StrCat("BACKEND_CHOICE_", absl::AsciiStrToUpper(options.backend)),
      &choice);
  message.set_backend(choice);
  message.set_deterministic(options.deterministic);
  message.set_self_check(options.self_check);
  message.set_count_nonfinite(options.count_nonfinite);
  message.set_request_id(options.request_id);
  return message;
}

v1::Tensor EncodeDescriptor(const TensorDescriptor& tensor) {
  v1::Tensor message;
  message.set_dtype(EncodeDataType(tensor.dtype));
  message.set_layout(EncodeLayout(tensor.layout));
  if (!IsRowMajor(tensor.layout)) {
    message.set_c0(static_cast<int32_t>(tensor.c0));
  }
  for (int64_t extent : tensor.dims) message.add_dims(extent);
  return message;
}

v1::Tensor EncodeTensor(const TensorDescriptor& tensor, int payload_index) {
  v1::Tensor message = EncodeDescriptor(tensor);
  message.mutable_inline_()->set_payload_index(payload_index);
  return message;
}

v1::Tensor EncodeTensor(const TensorDescriptor& tensor,
                        const RegionRange& range) {
  v1::Tensor message = EncodeDescriptor(tensor);
  EncodeRegion(range, message.mutable_region());
  return message;
}

}  // namespace convgrad

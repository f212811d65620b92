#include "tests/fuzz/decode_request.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "convgrad/v1/network.pb.h"
#include "proto/codec/codec.h"
#include "proto/codec/kept_tensors.h"
#include "proto/codec/network_codec.h"
#include "proto/codec/program_codec.h"
#include "proto/codec/session_codec.h"
#include "proto/codec/stream_codec.h"
#include "tests/fuzz/require.h"

namespace convgrad::fuzz {
namespace {

void RequireBytes(const TensorDescriptor& tensor) {
  const auto bytes = ByteSize(tensor);
  Require(bytes.has_value() && *bytes >= 0, "a tensor has a size in bytes");
}

bool AreEqual(const ConvOperation& a, const ConvOperation& b) {
  return a.direction == b.direction && a.problem == b.problem &&
         a.operands == b.operands && ToString(a) == ToString(b);
}

std::vector<int64_t> PayloadBytesOf(const ConvOperation& operation) {
  std::vector<int64_t> bytes;
  for (const auto& operand : operation.operands) {
    if (operand) bytes.push_back(*ByteSize(*operand));
  }
  return bytes;
}

void CheckOperation(const DecodedOperation& decoded) {
  const ConvOperation& operation = decoded.operation;
  Require(Validate(operation).ok(), "a decoded operation is valid");
  Require(operation.flops() >= 0, "operations take no negative time");
  Require(operation.nominal_macs() >= 0, "nor by estimate");
  for (const auto& operand : operation.operands) {
    if (operand) RequireBytes(*operand);
  }
  Require(decoded.kept_results.size() == operation.results.size() &&
              decoded.result_regions.size() == operation.results.size(),
          "each result has a place");
  for (const ResultRequest& result : operation.results) {
    RequireBytes(result.descriptor);
  }
  const auto again =
      DecodeOperation(EncodeOperation(operation), operation.direction,
                      PayloadBytesOf(operation));
  Require(again.ok(), "what is encoded can be decoded");
  Require(AreEqual(again->operation, operation), "and is the same");
}

template <typename Conv>
void DecodeConv(const Conv& request, Direction direction,
                absl::Span<const int64_t> payload_bytes,
                const TensorDescriptor& kept) {
  if (const auto options = DecodeOptions(request.options()); options.ok()) {
    EncodeOptions(*options);
  } else {
    RequireRefusal(options.status());
  }
  v1::ConvOperation operation = request.operation();
  for (const KeptReference& reference : KeptReferencesOf(operation)) {
    if (reference.result > 0) continue;
    const auto status = CompleteKept(reference, kept, &operation);
    if (!status.ok()) return RequireRefusal(status);
  }
  const auto decoded = DecodeOperation(operation, direction, payload_bytes);
  if (!decoded.ok()) return RequireRefusal(decoded.status());
  CheckOperation(*decoded);
}

void CheckPuts(const absl::StatusOr<std::vector<DecodedPut>>& puts,
               size_t payloads) {
  if (!puts.ok()) return RequireRefusal(puts.status());
  for (const DecodedPut& put : *puts) {
    Require(put.source.payload_index < static_cast<int64_t>(payloads),
            "a put's payload is there");
    if (put.descriptor) RequireBytes(*put.descriptor);
    Require(put.descriptor.has_value() || put.digest.size() == 32,
            "a put is known by its bytes or by its digest");
    if (!put.source.region) continue;
    Require(put.source.region->byte_offset >= 0 &&
                put.source.region->byte_length == *ByteSize(*put.descriptor),
            "a region's range is the tensor's");
  }
}

void CheckGet(const v1::NamedGet& get, const TensorDescriptor& kept) {
  const auto wanted = DecodeWanted(get, kept, "tensors[0]");
  if (!wanted.ok()) return RequireRefusal(wanted.status());
  RequireBytes(wanted->source);
  RequireBytes(wanted->descriptor);
  Require(wanted->first_byte >= 0 &&
              wanted->first_byte + *ByteSize(wanted->source) <= *ByteSize(kept),
          "a part lies in its tensor");
}

void CheckNamed(const std::vector<NamedTensor>& tensors, size_t payloads) {
  for (const NamedTensor& tensor : tensors) {
    const TensorSource& source = tensor.source;
    Require(source.payload_index < static_cast<int64_t>(payloads),
            "a tensor's payload is there");
    Require(source.kept.has_value() || source.region.has_value() ||
                source.payload_index >= 0,
            "a tensor is somewhere");
    Require(tensor.descriptor.has_value() != source.kept.has_value(),
            "a tensor is known, or kept");
    if (tensor.descriptor) RequireBytes(*tensor.descriptor);
  }
}

void CheckUpdate(const DecodedUpdate& update) {
  for (const DecodedUpdate::Group& group : update.groups) {
    Require(group.settings.learning_rate >= 0 && group.settings.beta1 < 1 &&
                group.settings.beta2 < 1,
            "a group's settings are in range");
  }
}

void CheckProgram(const v1::Program& message) {
  const auto program = DecodeProgram(message);
  if (!program.ok()) return RequireRefusal(program.status());
  const auto again = DecodeProgram(EncodeProgram(*program));
  Require(again.ok() && *again == *program, "a program is what was encoded");
}

}  // namespace

void DecodeRequest(const google::protobuf::Message& request,
                   absl::Span<const int64_t> payload_bytes,
                   const TensorDescriptor& kept) {
  if (const auto status = CheckCriticalFields(request); !status.ok()) {
    return RequireRefusal(status);
  }
  using google::protobuf::DynamicCastToGenerated;
  if (const auto* conv =
          DynamicCastToGenerated<v1::ConvForwardRequest>(&request)) {
    DecodeConv(*conv, Direction::kForward, payload_bytes, kept);
  } else if (const auto* back =
                 DynamicCastToGenerated<v1::ConvBackwardRequest>(&request)) {
    DecodeConv(*back, Direction::kBackward, payload_bytes, kept);
  } else if (const auto* put =
                 DynamicCastToGenerated<v1::PutTensorsRequest>(&request)) {
    CheckPuts(DecodePuts(*put, payload_bytes), payload_bytes.size());
  } else if (const auto* stream =
                 DynamicCastToGenerated<v1::PutTensorsStreamRequest>(
                     &request)) {
    CheckPuts(DecodePutHeader(*stream, payload_bytes), 0);
    const auto frame =
        CheckPutFrame(*stream, payload_bytes, v1::TensorFrame(), 1);
    if (!frame.ok()) RequireRefusal(frame);
  } else if (const auto* get =
                 DynamicCastToGenerated<v1::GetTensorsRequest>(&request)) {
    for (const v1::NamedGet& wanted : get->tensors()) CheckGet(wanted, kept);
  } else if (const auto* load =
                 DynamicCastToGenerated<v1::LoadProgramRequest>(&request)) {
    CheckProgram(load->program());
  } else if (const auto* run =
                 DynamicCastToGenerated<v1::RunProgramRequest>(&request)) {
    const auto decoded = DecodeRun(*run, payload_bytes);
    if (!decoded.ok()) return RequireRefusal(decoded.status());
    CheckNamed(decoded->inputs, payload_bytes.size());
    if (decoded->update) CheckUpdate(*decoded->update);
  } else if (const auto* program =
                 DynamicCastToGenerated<v1::BackwardProgramRequest>(&request)) {
    const auto decoded = DecodeTensors(program->output_gradients(),
                                       "output_gradients", payload_bytes);
    if (!decoded.ok()) return RequireRefusal(decoded.status());
    CheckNamed(*decoded, payload_bytes.size());
  } else if (const auto* step =
                 DynamicCastToGenerated<v1::UpdateParametersRequest>(
                     &request)) {
    const auto decoded = DecodeUpdate(*step, "");
    if (!decoded.ok()) return RequireRefusal(decoded.status());
    CheckUpdate(*decoded);
  } else if (const auto* opening =
                 DynamicCastToGenerated<v1::ConvStreamRequest>(&request)) {
    const auto opened =
        DecodeOpening(*opening, Direction::kBackward, payload_bytes);
    if (opened.ok()) {
      CheckOperation(opened->decoded);
    } else {
      RequireRefusal(opened.status());
    }
  }
}

}  // namespace convgrad::fuzz

#include "client/cpp/operation_message.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "proto/codec/codec.h"
#include "proto/codec/decode_operation.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

absl::Status CheckOperandBytes(const OperationCall& call) {
  for (Operand operand : kAllOperands) {
    const auto& tensor = call.operation.operand(operand);
    if (!tensor) continue;
    const std::string field = absl::StrCat("operands.", NameOf(operand));
    const auto bytes = call.operands[PositionOf(operand)];
    if (call.kept_operands[PositionOf(operand)].empty()) {
      RETURN_IF_ERROR(CheckByteCount(field, bytes, *tensor));
    } else if (!bytes.empty()) {
      return InvalidField(Reason::kByteCountMismatch, field,
                          absl::StrCat(bytes.size(), " bytes"),
                          "none, for the tensor is kept");
    }
  }
  return absl::OkStatus();
}

// Returns a null span if the caller named no destination.
absl::Span<std::byte> DestinationOf(const OperationCall& call, size_t result) {
  return result < call.destinations.size() ? call.destinations[result]
                                           : absl::Span<std::byte>();
}

const KeptResult* KeptAs(const OperationCall& call, size_t result) {
  const bool is_kept =
      result < call.kept_results.size() && call.kept_results[result];
  return is_kept ? &*call.kept_results[result] : nullptr;
}

// Makes `*message` name the kept tensors; other inline operands keep their
// order.
void NameKept(const OperationCall& call, v1::ConvOperation* message) {
  int payload_index = 0;
  for (Operand operand : kAllOperands) {
    if (!call.operation.operand(operand)) continue;
    v1::Tensor* tensor = MutableTensor(message->mutable_operands(), operand);
    const std::string& name = call.kept_operands[PositionOf(operand)];
    if (!name.empty()) {
      tensor->mutable_kept()->set_tensor_id(name);
    } else if (tensor->has_inline_()) {
      tensor->mutable_inline_()->set_payload_index(payload_index++);
    }
  }
  for (int i = 0; i < message->results_size(); ++i) {
    const KeptResult* kept = KeptAs(call, i);
    if (kept == nullptr) continue;
    v1::ResultRequest* result = message->mutable_results(i);
    result->mutable_kept()->set_tensor_id(kept->name);
    if (kept->adds) result->set_store(v1::ResultRequest::STORE_ADD);
  }
}

int64_t BytesIn(const RegionPlaces& places) {
  int64_t bytes = 0;
  for (const auto& range : places.operands) {
    if (range) bytes += range->byte_length;
  }
  for (const auto& range : places.results) {
    if (range) bytes += range->byte_length;
  }
  return bytes;
}

template <typename Request>
absl::StatusOr<grpc::ByteBuffer> EncodeAs(const OperationCall& call,
                                          const RegionPlaces& places,
                                          std::vector<grpc::Slice> payloads) {
  Request request;
  *request.mutable_operation() = EncodeOperation(call.operation, places);
  NameKept(call, request.mutable_operation());
  *request.mutable_options() = EncodeOptions(OptionsOf(call));
  return JoinMessage(request, std::move(payloads));
}

template <typename Response>
absl::StatusOr<OperationReply> DecodeAs(const OperationCall& call,
                                        const RegionPlaces& places,
                                        grpc::ByteBuffer* message) {
  const ConvOperation& operation = call.operation;
  OperationReply reply;
  reply.received_bytes = static_cast<int64_t>(message->Length());
  reply.region_bytes = BytesIn(places);
  Response response;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitReply(message, &response));
  const auto count = static_cast<int>(operation.results.size());
  if (response.results_size() != count) {
    return BadReply("results", absl::StrCat(response.results_size()),
                    absl::StrCat(count));
  }
  for (int i = 0; i < count; ++i) {
    const ResultRequest& wanted = operation.results[i];
    RETURN_IF_ERROR(CheckNamed(response.results(i), wanted));
    OperationResult result{wanted.which, wanted.descriptor, {}, {}};
    const v1::Tensor& tensor = response.results(i).tensor();
    const auto destination = DestinationOf(call, i);
    if (KeptAs(call, i) != nullptr) {
      if (!tensor.has_kept()) {
        return BadReply(NameOf(result.which), "bytes", "a kept tensor");
      }
    } else if (!places.results[i]) {
      const int64_t bytes = ByteSize(wanted.descriptor).value_or(0);
      ASSIGN_OR_RETURN(result.data,
                       TakePayload(NameOf(result.which), tensor, bytes,
                                   destination, absl::MakeSpan(payloads)));
      result.bytes =
          destination.data() != nullptr ? destination : result.data.bytes();
    } else if (tensor.has_region() &&
               DecodeRegion(tensor.region()) == *places.results[i]) {
      result.bytes = destination;
    } else {
      return BadReply(NameOf(result.which), "bytes elsewhere",
                      "them in the region, where they were wanted");
    }
    reply.results.push_back(std::move(result));
  }
  reply.report = std::move(*response.mutable_report());
  return reply;
}

}  // namespace

absl::StatusOr<RegionPlaces> PlacesOf(const OperationCall& call) {
  RETURN_IF_ERROR(CheckOperandBytes(call));
  RegionPlaces places;
  const std::vector<ResultRequest>& results = call.operation.results;
  places.results.resize(results.size());
  if (call.region != nullptr) {
    for (Operand operand : kAllOperands) {
      const auto place = PositionOf(operand);
      if (!call.operation.operand(operand)) continue;
      places.operands[place] = call.region->RangeOf(call.operands[place]);
    }
  }
  for (size_t i = 0; i < call.destinations.size(); ++i) {
    const absl::Span<std::byte> destination = call.destinations[i];
    if (destination.data() == nullptr) continue;
    const std::string field = absl::StrCat("destinations[", i, "]");
    if (i >= results.size()) {
      return OutOfRange(field, "a destination",
                        absl::StrCat(results.size(), " results"));
    }
    RETURN_IF_ERROR(CheckByteCount(field, destination, results[i].descriptor));
    if (call.region != nullptr) {
      places.results[i] = call.region->RangeOf(destination);
    }
  }
  return places;
}

std::vector<grpc::Slice> PayloadsOf(const OperationCall& call,
                                    const RegionPlaces& places,
                                    const BorrowedSlices& borrowed) {
  std::vector<grpc::Slice> payloads;
  for (Operand operand : kAllOperands) {
    const auto place = PositionOf(operand);
    const bool is_sent = call.operation.operand(operand) &&
                         !places.operands[place] &&
                         call.kept_operands[place].empty();
    if (is_sent) payloads.push_back(borrowed.SliceOf(call.operands[place]));
  }
  return payloads;
}

absl::StatusOr<grpc::ByteBuffer> EncodeRequest(
    const OperationCall& call, const RegionPlaces& places,
    std::vector<grpc::Slice> payloads) {
  return call.operation.direction == Direction::kForward
             ? EncodeAs<v1::ConvForwardRequest>(call, places,
                                                std::move(payloads))
             : EncodeAs<v1::ConvBackwardRequest>(call, places,
                                                 std::move(payloads));
}

absl::StatusOr<OperationReply> DecodeReply(const OperationCall& call,
                                           const RegionPlaces& places,
                                           grpc::ByteBuffer* message) {
  return call.operation.direction == Direction::kForward
             ? DecodeAs<v1::ConvForwardResponse>(call, places, message)
             : DecodeAs<v1::ConvBackwardResponse>(call, places, message);
}

}  // namespace convgrad

#include "server/rpc/convolutions/conv_call.h"

#include <string>
#include <type_traits>
#include <utility>

#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "server/rpc/calls/report.h"
#include "server/rpc/tensors/tensor_resolver.h"
#include "server/rpc/transport/refusal_log.h"

namespace convgrad {
namespace {

template <Direction kDirection>
using RequestHead =
    std::conditional_t<kDirection == Direction::kForward,
                       v1::ConvForwardRequest, v1::ConvBackwardRequest>;
template <Direction kDirection>
using ResponseHead =
    std::conditional_t<kDirection == Direction::kForward,
                       v1::ConvForwardResponse, v1::ConvBackwardResponse>;

// Returns the bytes of the results that the response message carries.
int64_t ResponseBytes(const DecodedOperation& decoded) {
  const ConvOperation& operation = decoded.operation;
  int64_t bytes = 0;
  for (size_t i = 0; i < operation.results.size(); ++i) {
    if (decoded.result_regions[i] || decoded.kept_results[i]) continue;
    bytes = SaturatingAdd(bytes, *ByteSize(operation.results[i].descriptor));
  }
  return bytes;
}

}  // namespace

template <Direction kDirection>
absl::StatusOr<UnaryCall::Request> ConvCall<kDirection>::Decode() {
  RequestHead<kDirection> head;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads, Split(&head));
  const std::vector<int64_t> sizes = SizesOf(payloads);
  const int64_t received = sample()->bytes_received;
  ASSIGN_OR_RETURN(const CallOptions options, DecodeOptions(head.options()));
  TensorResolver resolver(&session(), services().regions, std::move(payloads));
  RETURN_IF_ERROR(resolver.Complete(head.mutable_operation()));
  ASSIGN_OR_RETURN(DecodedOperation decoded,
                   DecodeOperation(head.operation(), kDirection, sizes));
  sample()->dtype = std::string(NameOf(decoded.operation.dtype()));
  RETURN_IF_ERROR(services().router->CheckLimits(decoded.operation));
  const int64_t response = ResponseBytes(decoded);
  RETURN_IF_ERROR(CheckMessageBytes("response", response));
  RETURN_IF_ERROR(decoded.support);
  ASSIGN_OR_RETURN(TensorPlaces places,
                   resolver.Places(decoded, reservation()));
  for (const TensorSource& source : decoded.sources) {
    if (source.region) sample()->bytes_received += source.region->byte_length;
  }
  DropUnneeded(&decoded.operation);
  ASSIGN_OR_RETURN(
      route_, services().router->Route(decoded.operation,
                                       {options.backend, received + response}));
  operation_ =
      std::make_shared<const ConvOperation>(std::move(decoded.operation));
  result_regions_ = std::move(decoded.result_regions);
  kept_results_ = std::move(decoded.kept_results);
  return Request{operation_, std::move(places), route_.backend,
                 InspectionFor(options)};
}

template <Direction kDirection>
InspectionRequest ConvCall<kDirection>::InspectionFor(
    const CallOptions& options) const {
  InspectionRequest inspection;
  inspection.count_nonfinite = options.count_nonfinite;
  if (options.self_check) {
    inspection.self_check = SelfCheckMode::kRequired;
  } else if (kDirection == Direction::kBackward &&
             services().self_check_sampler->Pick()) {
    inspection.self_check = SelfCheckMode::kSampled;
  }
  return inspection;
}

template <Direction kDirection>
absl::StatusOr<grpc::ByteBuffer> ConvCall<kDirection>::Encode(
    const JobOutcome& outcome, std::vector<grpc::Slice> payloads) {
  const ConvOperation& operation = *operation_;
  ResponseHead<kDirection> head;
  int payload_index = 0;
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& result = operation.results[i];
    v1::NamedTensor* named = head.add_results();
    named->set_which(EncodeResult(result.which));
    v1::Tensor* tensor = named->mutable_tensor();
    if (kept_results_[i]) {
      *tensor = session().Describe(result.descriptor, kept_results_[i]->name);
    } else if (result_regions_[i]) {
      *tensor = EncodeTensor(result.descriptor, *result_regions_[i]);
    } else {
      *tensor = EncodeTensor(result.descriptor, payload_index++);
    }
  }
  EncodeReport(*sample(), operation, outcome, route_.predictions,
               head.mutable_report());
  const auto& check = outcome.findings.self_check;
  if (check && !check->passed) {
    LogFailedSelfCheck(ToString(operation), outcome.implementation);
  }
  return JoinMessage(head, std::move(payloads));
}

template class ConvCall<Direction::kForward>;
template class ConvCall<Direction::kBackward>;

}  // namespace convgrad

// `ConvCall` handles ConvForward and ConvBackward.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "proto/codec/codec.h"
#include "server/rpc/calls/unary_call.h"

namespace convgrad {

// `ConvCall` decodes and encodes one convolution, on the threads that UnaryCall
// names.
template <Direction kDirection>
class ConvCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

 private:
  absl::StatusOr<UnaryCall::Request> Decode() override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<grpc::Slice> payloads) override;

  InspectionRequest InspectionFor(const CallOptions& options) const;

  // The operation, without operands that it doesn't need.
  std::shared_ptr<const ConvOperation> operation_;
  Router::Choice route_;
  // Places of the operation's results in regions and in the session. An element
  // is nullopt if the response carries the result or the other list has its
  // place.
  std::vector<std::optional<RegionRange>> result_regions_;
  std::vector<std::optional<KeptResult>> kept_results_;
};

}  // namespace convgrad

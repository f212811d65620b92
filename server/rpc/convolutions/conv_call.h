// A ConvForward or ConvBackward call.
#pragma once

#include <optional>
#include <vector>

#include "server/rpc/calls/unary_call.h"
#include "server/rpc/convolutions/conv_request.h"

namespace convgrad {

template <Direction kDirection>
class ConvCall final : public UnaryCall {
 public:
  using UnaryCall::UnaryCall;

 private:
  absl::StatusOr<UnaryCall::Request> Decode(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<LentBytes> results) override;

  InspectionRequest InspectionFor(const CallOptions& options) const;

  ConvRequest request_;
  // Of the operation's results; nullopt for those that the response carries,
  // and those that are in the other list.
  std::vector<std::optional<RegionRange>> result_regions_;
  std::vector<std::optional<KeptResult>> kept_results_;
};

}  // namespace convgrad

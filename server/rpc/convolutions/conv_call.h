// A ConvForward or ConvBackward call.
#pragma once

#include <optional>
#include <vector>

#include "server/rpc/calls/unary_call.h"
#include "server/rpc/convolutions/conv_request.h"

namespace convgrad {

class ConvCall final : public UnaryCall {
 public:
  ConvCall(const Method& method, const CallServices& services,
           grpc::GenericCallbackServerContext* context, Direction direction)
      : UnaryCall(method, services, context), direction_(direction) {}

 private:
  absl::StatusOr<Request> Decode(grpc::ByteBuffer* message) override;
  absl::StatusOr<grpc::ByteBuffer> Encode(
      const JobOutcome& outcome, std::vector<LentBytes> results) override;

  // Likewise, with the head of a request and of a response of this type.
  template <typename Head>
  absl::StatusOr<Request> DecodeAs(grpc::ByteBuffer* message);
  template <typename Head>
  absl::StatusOr<grpc::ByteBuffer> EncodeAs(const JobOutcome& outcome,
                                            std::vector<LentBytes> results);
  InspectionRequest InspectionFor(const CallOptions& options) const;

  const Direction direction_;
  ConvRequest request_;
  // Of the operation's results; nullopt for those that the response carries,
  // and those that are in the other list.
  std::vector<std::optional<RegionRange>> result_regions_;
  std::vector<std::optional<KeptResult>> kept_results_;
};

}  // namespace convgrad

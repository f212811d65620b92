// `OptimizerStep` is one step of an optimizer in a change of a session.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/optimizer/update_operation.h"
#include "convgrad/v1/network.pb.h"
#include "proto/codec/network_codec.h"
#include "server/rpc/calls/unary_call.h"

namespace convgrad {

// `OptimizerStep` updates parameters with gradients that the call writes or
// that the session keeps. Owned by one call.
class OptimizerStep {
 public:
  // `*paid` pays first, as in KeptMemory::Take; both pointers outlive this.
  // Requires: session->is_change() when the step begins. `path` is the prefix
  // of the request's fields in errors: "" or "update.".
  OptimizerStep(CallSession* session, Reservation* paid, std::string path)
      : session_(*session), paid_(*paid), path_(std::move(path)) {}

  // Takes memory for the tensors that the step writes, and adds them to the
  // call's writes. Call it once, after the call's gradients are among its
  // writes. The response carries only the operation's last result, the summary.
  // Errors: kInvalidArgument; kNotFound; kResourceExhausted; those of
  // Router::Route.
  absl::StatusOr<UnaryCall::Request> Begin(const DecodedUpdate& update,
                                           const Router& router);
  // Returns the response for the summary. A skipped step writes nothing and
  // drops the gradients.
  v1::UpdateParametersResponse End(const grpc::Slice& summary);

 private:
  struct Item;

  // Returns the parameters that have a gradient, with the settings of their
  // groups. If the step writes averages, also the other tensors that have one.
  absl::StatusOr<std::vector<Item>> FindItems(const DecodedUpdate& update);
  // Returns the tensor that the call writes, else the kept one.
  std::optional<KeptTensor> Newest(const std::string& name);
  static absl::Status CheckItem(const Item& item);
  static TensorPlace PlaceSettings(const UpdateSettings& settings,
                                   const std::vector<Item>& items);
  absl::Status PlaceItem(const Item& item, UpdatedParameter* parameter,
                         TensorPlaces* places);
  absl::Status PlaceStates(const Item& item, UpdatedParameter* parameter,
                           TensorPlaces* places);
  // Returns the kept tensor, nullopt if there is none. Errors: kInvalidArgument
  // if its dtype, its dims or the order of its elements aren't the expected
  // ones.
  absl::StatusOr<std::optional<KeptTensor>> FindState(
      const std::string& name, const TensorDescriptor& expected) const;
  // Adds the place of the parameter's new value: the memory of its gradient,
  // which this call has made and no other call sees.
  void WriteOverGradient(const Item& item, TensorPlaces* places);
  // Adds the place of a tensor that the step writes.
  absl::Status Write(const std::string& name,
                     const TensorDescriptor& descriptor, TensorPlaces* places);

  CallSession& session_;
  Reservation& paid_;
  const std::string path_;
  Optimizer optimizer_ = Optimizer::kSgd;
  bool is_averaged_ = false;
  // Names of the tensors that the step writes, and of the gradients that it
  // uses.
  std::vector<std::string> written_;
  std::vector<std::string> gradients_;
};

}  // namespace convgrad

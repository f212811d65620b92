// One step of an optimizer as part of a change of a session.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/optimizer/update_operation.h"
#include "convgrad/v1/network.pb.h"
#include "proto/codec/network_codec.h"
#include "server/memory/lent_bytes.h"
#include "server/memory/tensor_place.h"
#include "server/rpc/calls/session_part.h"

namespace convgrad {

// Steps parameters by gradients that the call writes, or else by those that the
// session has. Owned by one call.
class OptimizerStep {
 public:
  // The operation, and where its tensors are. Its only result that goes back by
  // message is the last one, the summary.
  struct Work {
    std::shared_ptr<const Operation> operation;
    TensorPlaces places;
  };

  // `session` and `paid` as KeptResults'. `path` leads to the request's fields
  // in errors: "", or "update.".
  OptimizerStep(SessionPart* session, Reservation* paid, std::string path)
      : session_(*session), paid_(*paid), path_(std::move(path)) {}

  // Takes memory for what the step writes, and adds that to the call's writes.
  // To be called once, when the call's gradients are among them. Errors:
  // kInvalidArgument; kNotFound; kResourceExhausted.
  absl::StatusOr<Work> Begin(const DecodedUpdate& update);
  // Returns what the step tells, by its summary. One that was skipped writes
  // nothing, and drops the gradients.
  v1::UpdateParametersResponse End(const LentBytes& summary);

 private:
  struct Item;

  // Returns the parameters that have a gradient, with the settings of their
  // groups.
  absl::StatusOr<std::vector<Item>> FindItems(const DecodedUpdate& update);
  std::optional<KeptTensor> GradientOf(const std::string& parameter);
  static absl::Status CheckItem(const Item& item);
  static TensorPlace PlaceSettings(const UpdateSettings& settings,
                                   const std::vector<Item>& items);
  absl::Status PlaceItem(const Item& item, UpdatedParameter* parameter,
                         TensorPlaces* places);

  SessionPart& session_;
  Reservation& paid_;
  const std::string path_;
  Optimizer optimizer_ = Optimizer::kSgd;
  // Names of what the step writes, and of the gradients that it uses.
  std::vector<std::string> written_;
  std::vector<std::string> gradients_;
};

}  // namespace convgrad

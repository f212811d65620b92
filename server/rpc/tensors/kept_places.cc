#include "server/rpc/tensors/kept_places.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/rpc/tensors/kept_results.h"

namespace convgrad {
absl::StatusOr<TensorDescriptor> KeptPlaces::FindOperand(
    Operand which, const v1::Tensor::Kept& kept, const std::string& path) {
  const std::string field = path + ".kept";
  RETURN_IF_ERROR(session_.CheckId(kept.session_id(), field));
  ASSIGN_OR_RETURN(
      KeptTensor tensor,
      session_.Find(kept.tensor_id(), kept.version(), field + ".tensor_id"));
  TensorDescriptor descriptor = tensor.descriptor;
  operands_[PositionOf(which)] = std::move(tensor);
  return descriptor;
}

absl::StatusOr<std::optional<TensorDescriptor>> KeptPlaces::FindSum(
    int /*index*/, const v1::ResultRequest::KeptDestination& kept,
    const std::string& path) {
  RETURN_IF_ERROR(session_.CheckId(kept.session_id(), path + ".kept"));
  const auto& tensors = session_.state().tensors;
  const auto found = tensors.find(kept.tensor_id());
  if (found == tensors.end()) return std::nullopt;
  return found->second.descriptor;
}

absl::Status KeptPlaces::Place(const DecodedOperation& decoded,
                               TensorPlaces* places, Reservation* paid) {
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i]) continue;
    const std::shared_ptr<const KeptBytes>& bytes = operands_[i]->bytes;
    // Operands are only read.
    places->operands[i] = {nullptr, bytes, bytes->data(), bytes->id()};
  }
  const auto& results = decoded.operation.results;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!decoded.kept_results[i]) continue;
    RETURN_IF_ERROR(PlaceResult(results[i].descriptor, *decoded.kept_results[i],
                                absl::StrCat("operation.results[", i, "].kept"),
                                &places->results[i], paid));
  }
  return absl::OkStatus();
}

absl::Status KeptPlaces::PlaceResult(const TensorDescriptor& descriptor,
                                     const KeptResult& result,
                                     const std::string& path,
                                     TensorPlace* place, Reservation* paid) {
  RETURN_IF_ERROR(session_.CheckId("", path));
  RETURN_IF_ERROR(session_.CheckChange(path));
  RETURN_IF_ERROR(CheckName(result.name, path + ".tensor_id"));
  KeptResults kept(&session_, paid);
  // Layouts agree (CompleteKept); blocks may still be of other groups.
  ASSIGN_OR_RETURN(*place, result.adds ? kept.Add(result.name, descriptor, path)
                                       : kept.Write(result.name, descriptor));
  return absl::OkStatus();
}

}  // namespace convgrad

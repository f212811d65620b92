#include "backends/onednn/onednn_piece_places.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

// The extract as it lies within the caller's tensor.
PhysicalLayout LayoutWithin(const TensorDescriptor& whole,
                            const Extract& extract) {
  PhysicalLayout layout = PhysicalLayoutOf(whole);
  PhysicalAxis& axis = layout.axes[extract.axis];
  axis.extent = extract.descriptor.dims[extract.axis];
  axis.first = extract.begin;
  return layout;
}

// Whether the extract's elements follow on each other in the caller's tensor.
bool IsContiguous(const TensorDescriptor& whole, const Extract& extract) {
  const Dims strides = Strides(whole);
  for (size_t i = 0; i < strides.size(); ++i) {
    if (whole.dims[i] > 1 && strides[i] > strides[extract.axis]) return false;
  }
  return true;
}

int64_t OffsetWithin(const TensorDescriptor& whole, const Extract& extract) {
  return extract.begin * Strides(whole)[extract.axis] * ByteSizeOf(whole.dtype);
}

class Placer {
 public:
  Placer(const Partition& partition, const ComputeOptions& options,
         int64_t groups)
      : partition_(partition), options_(options), groups_(groups) {}

  absl::Status PlaceAll(const ConvOperation& operation,
                        const PiecePlanner& planner);
  PiecePlaces Take() { return std::move(places_); }

 private:
  Place PlaceOperand(Operand which, const TensorDescriptor& whole,
                     const Extract& extract, Area* lane,
                     TensorDescriptor* descriptor);
  Place PlaceResult(const ResultRequest& whole,
                    const Piece::PieceResult& result, Area* lane,
                    ResultRequest* request);
  Place PlaceSummand(const ResultRequest& whole, size_t index,
                     ResultRequest* request);
  // Returns the form of the weight that the next share's plan makes, if it
  // does.
  std::optional<size_t> PlaceWeightForm(const Plan& plan,
                                        const Extract& weight);

  const Partition partition_;
  const ComputeOptions options_;
  const int64_t groups_;
  PiecePlaces places_;
  std::map<const Plan*, size_t> forms_of_whole_;
};

Place Placer::PlaceOperand(Operand which, const TensorDescriptor& whole,
                           const Extract& extract, Area* lane,
                           TensorDescriptor* descriptor) {
  const DataType dtype = ComputeDtype(whole.dtype, options_);
  if (extract.is_whole()) {
    // Where a core has one piece, the piece's plan may as well convert it, and
    // so it does where pieces share what the first one makes of the weight. (A
    // depthwise one keeps nothing, and wants the dtype of the other operands.)
    const bool is_kept = which == Operand::kWeight && groups_ == 1;
    if (dtype == whole.dtype || partition_.pieces_per_thread == 1 || is_kept) {
      return {};
    }
    descriptor->dtype = dtype;
    const auto known =
        std::find_if(places_.conversions.begin(), places_.conversions.end(),
                     [&](const Conversion& c) { return c.operand == which; });
    if (known != places_.conversions.end()) {
      return {Place::Where::kCore, known->offset};
    }
    const int64_t offset = places_.core.Allocate(*ByteSize(*descriptor));
    places_.conversions.push_back(
        {which, Reorder::Make(whole, *descriptor), offset});
    return {Place::Where::kCore, offset};
  }
  if (IsContiguous(whole, extract)) {
    return {Place::Where::kCaller, OffsetWithin(whole, extract)};
  }
  descriptor->dtype = dtype;
  return {Place::Where::kPiece, lane->Allocate(*ByteSize(*descriptor)),
          Reorder::Make(LayoutWithin(whole, extract), whole.dtype,
                        PhysicalLayoutOf(*descriptor), dtype)};
}

Place Placer::PlaceSummand(const ResultRequest& whole, size_t index,
                           ResultRequest* request) {
  request->scale = 1;
  request->descriptor.dtype = DataType::kF32;
  const int64_t offset =
      places_.shared.Allocate(*ByteSize(request->descriptor));
  auto sum = std::find_if(places_.sums.begin(), places_.sums.end(),
                          [&](const Sum& s) { return s.index == index; });
  if (sum == places_.sums.end()) {
    const TensorDescriptor& descriptor = whole.descriptor;
    sum = places_.sums.insert(
        sum,
        {index, ElementCount(descriptor), whole.scale, descriptor.dtype, {}});
  }
  sum->offsets.push_back(offset);
  return {Place::Where::kShared, offset};
}

Place Placer::PlaceResult(const ResultRequest& whole,
                          const Piece::PieceResult& result, Area* lane,
                          ResultRequest* request) {
  const Extract& extract = result.extract;
  if (result.is_summed) return PlaceSummand(whole, result.index, request);
  if (extract.is_whole()) return {};
  const TensorDescriptor& tensor = whole.descriptor;
  if (IsContiguous(tensor, extract)) {
    return {Place::Where::kCaller, OffsetWithin(tensor, extract)};
  }
  TensorDescriptor& descriptor = request->descriptor;
  descriptor.dtype = ComputeDtype(tensor.dtype, options_);
  return {Place::Where::kPiece, lane->Allocate(*ByteSize(descriptor)),
          Reorder::Make(PhysicalLayoutOf(descriptor), descriptor.dtype,
                        LayoutWithin(tensor, extract), tensor.dtype)};
}

std::optional<size_t> Placer::PlaceWeightForm(const Plan& plan,
                                              const Extract& weight) {
  const int64_t bytes = plan.prepared_weight_bytes();
  if (bytes == 0) return std::nullopt;
  std::vector<WeightForm>& forms = places_.weight_forms;
  const auto known = forms_of_whole_.find(&plan);
  if (weight.is_whole() && known != forms_of_whole_.end()) {
    WeightForm& form = forms[known->second];
    if (!form.core_offset) form.core_offset = places_.core.Allocate(bytes);
    return known->second;
  }
  const size_t index = forms.size();
  forms.push_back({bytes, places_.prepared_weight.Allocate(bytes),
                   places_.shares.size(), std::nullopt});
  if (weight.is_whole()) forms_of_whole_[&plan] = index;
  return index;
}

absl::Status Placer::PlaceAll(const ConvOperation& operation,
                              const PiecePlanner& planner) {
  std::map<std::string, std::shared_ptr<const Plan>> plans;
  bool takes_weight_as_is = false;
  for (Piece& piece : CutInto(operation, partition_, options_.threads)) {
    ConvOperation& part = piece.operation;
    Share share;
    Area lane;
    for (Operand which : kAllOperands) {
      if (!part.operand(which)) continue;
      const auto index = static_cast<size_t>(which);
      share.operands[index] =
          PlaceOperand(which, *operation.operand(which), piece.operands[index],
                       &lane, &*part.operand(which));
    }
    for (size_t i = 0; i < part.results.size(); ++i) {
      const size_t index = piece.results[i].index;
      share.result_indices.push_back(index);
      share.results.push_back(PlaceResult(
          operation.results[index], piece.results[i], &lane, &part.results[i]));
    }
    std::shared_ptr<const Plan>& plan = plans[ToString(part)];
    if (plan == nullptr) {
      ASSIGN_OR_RETURN(plan, planner(part));
      places_.resident_bytes += plan->resident_bytes();
    }
    share.plan = plan;
    if (part.operand(Operand::kWeight)) {
      share.weight_form = PlaceWeightForm(
          *plan, piece.operands[static_cast<size_t>(Operand::kWeight)]);
      takes_weight_as_is |= !share.weight_form;
    }
    share.scratch = lane.Allocate(plan->scratch_bytes());
    if (lane.size() > places_.piece.size()) places_.piece = lane;
    places_.shares.push_back(std::move(share));
  }
  if (takes_weight_as_is) places_.prepared_weight = Area();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PiecePlaces> PlacePieces(const ConvOperation& operation,
                                        const Partition& partition,
                                        const ComputeOptions& options,
                                        const PiecePlanner& planner) {
  Placer placer(partition, options, operation.problem.groups);
  RETURN_IF_ERROR(placer.PlaceAll(operation, planner));
  return placer.Take();
}

}  // namespace convgrad::onednn

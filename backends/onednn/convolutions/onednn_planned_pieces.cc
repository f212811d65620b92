#include "backends/onednn/convolutions/onednn_planned_pieces.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

// Returns the layout of the range within the caller's tensor.
PhysicalLayout LayoutWithin(const TensorDescriptor& whole,
                            const TensorRange& range) {
  PhysicalLayout layout = PhysicalLayoutOf(whole);
  PhysicalAxis& axis = layout.axes[range.axis];
  axis.extent = range.descriptor.dims[range.axis];
  axis.first = range.begin;
  return layout;
}

// Returns whether the range's elements are contiguous in the caller's tensor.
bool IsContiguous(const TensorDescriptor& whole, const TensorRange& range) {
  const Dims strides = Strides(whole);
  for (size_t i = 0; i < strides.size(); ++i) {
    if (whole.dims[i] > 1 && strides[i] > strides[range.axis]) return false;
  }
  return true;
}

int64_t OffsetWithin(const TensorDescriptor& whole, const TensorRange& range) {
  return range.begin * Strides(whole)[range.axis] * ByteSizeOf(whole.dtype);
}

class Placer {
 public:
  Placer(const Partition& partition, const ComputeOptions& options,
         int64_t groups)
      : partition_(partition), options_(options), groups_(groups) {}

  absl::Status PlaceAll(const ConvOperation& operation,
                        const PiecePlanner& planner);
  PlannedPieces Take() { return std::move(planned_); }

 private:
  PieceTensor PlaceOperand(Operand which, const TensorDescriptor& whole,
                           const TensorRange& range, AreaLayout* scratch,
                           TensorDescriptor* descriptor);
  PieceTensor PlaceResult(const ResultRequest& whole,
                          const Piece::PieceResult& result, AreaLayout* scratch,
                          ResultRequest* request);
  PieceTensor PlaceSummand(const ResultRequest& whole, size_t index,
                           ResultRequest* request);
  // Returns the index of the weight form that the next piece's plan makes;
  // nullopt if it makes none.
  std::optional<size_t> PlaceWeightForm(const Plan& plan,
                                        const TensorRange& weight);

  const Partition partition_;
  const ComputeOptions options_;
  const int64_t groups_;
  PlannedPieces planned_;
  std::map<const Plan*, size_t> forms_of_whole_;
};

PieceTensor Placer::PlaceOperand(Operand which, const TensorDescriptor& whole,
                                 const TensorRange& range, AreaLayout* scratch,
                                 TensorDescriptor* descriptor) {
  const DataType dtype = ComputeDtype(whole.dtype, options_);
  if (range.is_whole()) {
    // The piece's plan converts the operand itself if a core has only one piece
    // or if the pieces share the weight form that the first piece makes. (A
    // depthwise weight needs the dtype of the other operands.)
    const bool is_kept = which == Operand::kWeight && groups_ == 1;
    if (dtype == whole.dtype || partition_.pieces_per_thread == 1 || is_kept) {
      return {};
    }
    descriptor->dtype = dtype;
    return {PieceTensor::Where::kPiece,
            scratch->Allocate(*ByteSize(*descriptor)),
            Reorder::Make(whole, *descriptor)};
  }
  if (IsContiguous(whole, range)) {
    return {PieceTensor::Where::kCaller, OffsetWithin(whole, range)};
  }
  descriptor->dtype = dtype;
  return {PieceTensor::Where::kPiece, scratch->Allocate(*ByteSize(*descriptor)),
          Reorder::Make(LayoutWithin(whole, range), whole.dtype,
                        PhysicalLayoutOf(*descriptor), dtype)};
}

PieceTensor Placer::PlaceSummand(const ResultRequest& whole, size_t index,
                                 ResultRequest* request) {
  request->scale = 1;
  request->descriptor.dtype = DataType::kF32;
  const int64_t offset =
      planned_.shared.Allocate(*ByteSize(request->descriptor));
  auto sum = std::find_if(planned_.sums.begin(), planned_.sums.end(),
                          [&](const Sum& s) { return s.index == index; });
  if (sum == planned_.sums.end()) {
    const TensorDescriptor& descriptor = whole.descriptor;
    sum = planned_.sums.insert(
        sum,
        {index, ElementCount(descriptor), whole.scale, descriptor.dtype, {}});
  }
  sum->offsets.push_back(offset);
  return {PieceTensor::Where::kShared, offset};
}

PieceTensor Placer::PlaceResult(const ResultRequest& whole,
                                const Piece::PieceResult& result,
                                AreaLayout* scratch, ResultRequest* request) {
  const TensorRange& range = result.range;
  if (result.is_summed) return PlaceSummand(whole, result.index, request);
  if (range.is_whole()) return {};
  const TensorDescriptor& tensor = whole.descriptor;
  if (IsContiguous(tensor, range)) {
    return {PieceTensor::Where::kCaller, OffsetWithin(tensor, range)};
  }
  TensorDescriptor& descriptor = request->descriptor;
  descriptor.dtype = ComputeDtype(tensor.dtype, options_);
  return {PieceTensor::Where::kPiece, scratch->Allocate(*ByteSize(descriptor)),
          Reorder::Make(PhysicalLayoutOf(descriptor), descriptor.dtype,
                        LayoutWithin(tensor, range), tensor.dtype)};
}

std::optional<size_t> Placer::PlaceWeightForm(const Plan& plan,
                                              const TensorRange& weight) {
  const int64_t bytes = plan.prepared_weight_bytes();
  if (bytes == 0) return std::nullopt;
  std::vector<WeightForm>& forms = planned_.weight_forms;
  const auto known = forms_of_whole_.find(&plan);
  if (weight.is_whole() && known != forms_of_whole_.end()) {
    WeightForm& form = forms[known->second];
    if (!form.core_offset) form.core_offset = planned_.core.Allocate(bytes);
    return known->second;
  }
  const size_t index = forms.size();
  forms.push_back({bytes, planned_.prepared_weight.Allocate(bytes),
                   planned_.pieces.size(), std::nullopt});
  if (weight.is_whole()) forms_of_whole_[&plan] = index;
  return index;
}

absl::Status Placer::PlaceAll(const ConvOperation& operation,
                              const PiecePlanner& planner) {
  std::map<std::string, std::shared_ptr<const Plan>> plans;
  bool takes_weight_as_is = false;
  for (Piece& piece : CutInto(operation, partition_, options_.threads)) {
    ConvOperation& part = piece.operation;
    PlannedPiece planned;
    AreaLayout scratch;
    for (Operand which : kAllOperands) {
      if (!part.operand(which)) continue;
      const auto index = static_cast<size_t>(which);
      planned.operands[index] =
          PlaceOperand(which, *operation.operand(which), piece.operands[index],
                       &scratch, &*part.operand(which));
    }
    for (size_t i = 0; i < part.results.size(); ++i) {
      const size_t index = piece.results[i].index;
      planned.result_indices.push_back(index);
      planned.results.push_back(PlaceResult(operation.results[index],
                                            piece.results[i], &scratch,
                                            &part.results[i]));
    }
    std::shared_ptr<const Plan>& plan = plans[ToString(part)];
    if (plan == nullptr) {
      ASSIGN_OR_RETURN(plan, planner(part));
      planned_.resident_bytes += plan->resident_bytes();
    }
    planned.plan = plan;
    if (part.operand(Operand::kWeight)) {
      planned.weight_form = PlaceWeightForm(
          *plan, piece.operands[static_cast<size_t>(Operand::kWeight)]);
      takes_weight_as_is |= !planned.weight_form;
    }
    planned.scratch = scratch.Allocate(plan->scratch_bytes());
    if (scratch.size() > planned_.piece.size()) planned_.piece = scratch;
    planned_.pieces.push_back(std::move(planned));
  }
  if (takes_weight_as_is) planned_.prepared_weight = AreaLayout();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlannedPieces> PlanPieces(const ConvOperation& operation,
                                         const Partition& partition,
                                         const ComputeOptions& options,
                                         const PiecePlanner& planner) {
  Placer placer(partition, options, operation.problem.groups);
  RETURN_IF_ERROR(placer.PlaceAll(operation, planner));
  return placer.Take();
}

}  // namespace convgrad::onednn

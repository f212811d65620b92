#include "backends/onednn/onednn_partitioned_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/element_convert.h"
#include "backends/core/reorder.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kAlignment = 64;

// Offsets into an area that is laid out piece by piece.
class Area {
 public:
  int64_t Allocate(int64_t bytes) {
    const int64_t offset = size_;
    size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

// Where a piece finds one of its tensors.
struct Place {
  enum class Where {
    kCaller,  // at `offset` of the caller's tensor
    kShared,  // scratch that all pieces see
    kLane,    // scratch of the core that computes the piece
  };
  Where where = Where::kCaller;
  int64_t offset = 0;  // bytes
  // Between the caller's tensor and kLane.
  std::optional<Reorder> copy = std::nullopt;
};

// A piece, ready to run.
struct Share {
  std::shared_ptr<const Plan> plan;
  std::array<std::optional<Place>, kOperandCount> operands;
  std::vector<size_t> result_indices;  // in the caller's results
  std::vector<Place> results;
  int64_t scratch = 0;  // the plan's, in the lane
};

// A tensor that every piece reads, converted once.
struct Conversion {
  Operand operand;
  Reorder reorder;
  int64_t offset;
};

// The pieces' summands of one result.
struct Sum {
  size_t index;
  int64_t count;
  float scale;
  DataType dtype;
  std::vector<int64_t> offsets;  // of the shared scratch, by piece
};

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

void AddUp(const Sum& sum, const std::byte* shared, int64_t begin, int64_t end,
           std::byte* result) {
  constexpr int64_t kBlock = 1024;
  float block[kBlock];
  for (; begin < end; begin += kBlock) {
    const int64_t count = std::min(kBlock, end - begin);
    const auto summand = [&](int64_t offset) {
      return reinterpret_cast<const float*>(shared + offset) + begin;
    };
    std::copy_n(summand(sum.offsets[0]), count, block);
    for (size_t piece = 1; piece < sum.offsets.size(); ++piece) {
      const float* more = summand(sum.offsets[piece]);
      for (int64_t i = 0; i < count; ++i) block[i] += more[i];
    }
    for (int64_t i = 0; i < count; ++i) block[i] *= sum.scale;
    ConvertRun(DataType::kF32, block, sum.dtype,
               result + begin * ByteSizeOf(sum.dtype), count);
  }
}

class PartitionedPlan final : public Plan {
 public:
  explicit PartitionedPlan(int threads) : threads_(threads) {}

  absl::Status Build(const ConvOperation& operation, const Partition& partition,
                     const PiecePlanner& planner);

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;
  int64_t scratch_bytes() const override {
    return shared_.size() + threads_ * lane_.size();
  }
  int64_t resident_bytes() const override { return resident_bytes_; }
  absl::string_view implementation() const override { return implementation_; }

 private:
  Place PlaceOperand(Operand which, const TensorDescriptor& whole,
                     const Extract& extract, Area* lane,
                     TensorDescriptor* descriptor);
  Place PlaceResult(const ResultRequest& whole,
                    const Piece::PieceResult& result, Area* lane,
                    ResultRequest* request);
  Place PlaceSummand(const ResultRequest& whole, size_t index,
                     ResultRequest* request);
  void Convert(const RunBuffers& buffers) const;
  absl::StatusOr<RunTimes> RunShare(const Share& share,
                                    const RunBuffers& buffers,
                                    std::byte* lane) const;
  void AddUpAll(const RunBuffers& buffers) const;

  const int threads_;
  Area shared_, lane_;
  std::vector<Conversion> conversions_;
  std::vector<Share> shares_;
  std::vector<Sum> sums_;
  int64_t resident_bytes_ = 0;
  std::string implementation_;
};

Place PartitionedPlan::PlaceOperand(Operand which,
                                    const TensorDescriptor& whole,
                                    const Extract& extract, Area* lane,
                                    TensorDescriptor* descriptor) {
  const DataType dtype = ComputeDtype(whole.dtype);
  if (extract.is_whole()) {
    if (dtype == whole.dtype) return {};
    descriptor->dtype = dtype;
    const auto known =
        std::find_if(conversions_.begin(), conversions_.end(),
                     [&](const Conversion& c) { return c.operand == which; });
    if (known != conversions_.end()) {
      return {Place::Where::kShared, known->offset};
    }
    const int64_t offset = shared_.Allocate(*ByteSize(*descriptor));
    conversions_.push_back({which, Reorder::Make(whole, *descriptor), offset});
    return {Place::Where::kShared, offset};
  }
  if (IsContiguous(whole, extract)) {
    return {Place::Where::kCaller, OffsetWithin(whole, extract)};
  }
  descriptor->dtype = dtype;
  return {Place::Where::kLane, lane->Allocate(*ByteSize(*descriptor)),
          Reorder::Make(LayoutWithin(whole, extract), whole.dtype,
                        PhysicalLayoutOf(*descriptor), dtype)};
}

Place PartitionedPlan::PlaceSummand(const ResultRequest& whole, size_t index,
                                    ResultRequest* request) {
  request->scale = 1;
  request->descriptor.dtype = DataType::kF32;
  const int64_t offset = shared_.Allocate(*ByteSize(request->descriptor));
  auto sum = std::find_if(sums_.begin(), sums_.end(),
                          [&](const Sum& s) { return s.index == index; });
  if (sum == sums_.end()) {
    const TensorDescriptor& descriptor = whole.descriptor;
    sum = sums_.insert(
        sum,
        {index, ElementCount(descriptor), whole.scale, descriptor.dtype, {}});
  }
  sum->offsets.push_back(offset);
  return {Place::Where::kShared, offset};
}

Place PartitionedPlan::PlaceResult(const ResultRequest& whole,
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
  descriptor.dtype = ComputeDtype(tensor.dtype);
  return {Place::Where::kLane, lane->Allocate(*ByteSize(descriptor)),
          Reorder::Make(PhysicalLayoutOf(descriptor), descriptor.dtype,
                        LayoutWithin(tensor, extract), tensor.dtype)};
}

absl::Status PartitionedPlan::Build(const ConvOperation& operation,
                                    const Partition& partition,
                                    const PiecePlanner& planner) {
  std::map<std::string, std::shared_ptr<const Plan>> plans;
  for (Piece& piece : CutInto(operation, partition, threads_)) {
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
      resident_bytes_ += plan->resident_bytes();
    }
    share.plan = plan;
    share.scratch = lane.Allocate(plan->scratch_bytes());
    if (lane.size() > lane_.size()) lane_ = lane;
    shares_.push_back(std::move(share));
  }
  implementation_ = absl::StrCat(ToString(partition), "(",
                                 shares_[0].plan->implementation(), ")");
  return absl::OkStatus();
}

void PartitionedPlan::Convert(const RunBuffers& buffers) const {
  for (const Conversion& conversion : conversions_) {
    const Reorder& reorder = conversion.reorder;
    ParallelFor(threads_, reorder.part_count(), 1,
                [&](int, int64_t begin, int64_t end) {
                  reorder.Run(buffers.operand(conversion.operand),
                              buffers.scratch.data() + conversion.offset, begin,
                              end);
                });
  }
}

absl::StatusOr<RunTimes> PartitionedPlan::RunShare(const Share& share,
                                                   const RunBuffers& buffers,
                                                   std::byte* lane) const {
  const absl::Time start = absl::Now();
  RunBuffers own;
  const auto locate = [&](const Place& place, void* caller) -> void* {
    switch (place.where) {
      case Place::Where::kCaller:
        return static_cast<std::byte*>(caller) + place.offset;
      case Place::Where::kShared:
        return buffers.scratch.data() + place.offset;
      case Place::Where::kLane:
        break;
    }
    return lane + place.offset;
  };
  for (size_t i = 0; i < share.operands.size(); ++i) {
    if (!share.operands[i]) continue;
    const Place& place = *share.operands[i];
    void* at = locate(place, const_cast<void*>(buffers.operands[i]));
    if (place.copy) place.copy->Run(buffers.operands[i], at);
    own.operands[i] = at;
  }
  for (size_t i = 0; i < share.results.size(); ++i) {
    own.results.push_back(
        locate(share.results[i], buffers.results[share.result_indices[i]]));
  }
  own.scratch =
      absl::MakeSpan(lane + share.scratch, share.plan->scratch_bytes());
  const absl::Time loaded = absl::Now();
  ASSIGN_OR_RETURN(RunTimes times, share.plan->Run(own));
  const absl::Time computed = absl::Now();
  for (size_t i = 0; i < share.results.size(); ++i) {
    const auto& copy = share.results[i].copy;
    if (copy)
      copy->Run(own.results[i], buffers.results[share.result_indices[i]]);
  }
  times.reorder += loaded - start + (absl::Now() - computed);
  return times;
}

void PartitionedPlan::AddUpAll(const RunBuffers& buffers) const {
  constexpr int64_t kGrain = 16 << 10;
  for (const Sum& sum : sums_) {
    ParallelFor(threads_, sum.count, kGrain,
                [&](int, int64_t begin, int64_t end) {
                  AddUp(sum, buffers.scratch.data(), begin, end,
                        static_cast<std::byte*>(buffers.results[sum.index]));
                });
  }
}

absl::StatusOr<RunTimes> PartitionedPlan::Run(const RunBuffers& buffers) const {
  UseThreads(threads_);
  const absl::Time start = absl::Now();
  Convert(buffers);
  const absl::Time converted = absl::Now();
  std::vector<absl::StatusOr<RunTimes>> outcomes(shares_.size(), RunTimes());
  ParallelFor(threads_, std::ssize(shares_), 1,
              [&](int lane, int64_t begin, int64_t end) {
                std::byte* own = buffers.scratch.data() + shared_.size() +
                                 lane * lane_.size();
                for (int64_t i = begin; i < end; ++i) {
                  outcomes[i] = RunShare(shares_[i], buffers, own);
                }
              });
  const absl::Time computed = absl::Now();
  RunTimes times;
  for (const absl::StatusOr<RunTimes>& outcome : outcomes) {
    RETURN_IF_ERROR(outcome.status());
    times.reorder += outcome->reorder / threads_;
  }
  times.compute =
      std::max(computed - converted - times.reorder, absl::ZeroDuration());
  AddUpAll(buffers);
  times.reorder += converted - start + (absl::Now() - computed);
  return times;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> MakePartitionedPlan(
    const ConvOperation& operation, const Partition& partition, int threads,
    const PiecePlanner& planner) {
  auto plan = std::make_unique<PartitionedPlan>(threads);
  RETURN_IF_ERROR(plan->Build(operation, partition, planner));
  return plan;
}

}  // namespace convgrad::onednn

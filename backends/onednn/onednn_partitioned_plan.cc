#include "backends/onednn/onednn_partitioned_plan.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "backends/kernels/element_convert.h"
#include "backends/onednn/onednn_threads.h"

namespace convgrad::onednn {
namespace {

constexpr auto kWeightIndex = static_cast<size_t>(Operand::kWeight);

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

// The pieces that a core runs one after the other.
struct Lane {
  std::byte* core;  // its scratch
  size_t begin, end;
  std::vector<bool> has_form;  // by weight form
};

class PartitionedPlan final : public Plan {
 public:
  PartitionedPlan(PiecePlaces places, const Partition& partition, int threads)
      : places_(std::move(places)),
        threads_(threads),
        implementation_(absl::StrCat(ToString(partition), "(",
                                     places_.shares[0].plan->implementation(),
                                     ")")) {}

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;
  int64_t scratch_bytes() const override {
    return places_.shared.size() + threads_ * places_.core_bytes();
  }
  int64_t prepared_weight_bytes() const override {
    return places_.prepared_weight.size();
  }
  int64_t resident_bytes() const override { return places_.resident_bytes; }
  absl::string_view implementation() const override { return implementation_; }

 private:
  void LendWeightForm(size_t form, const RunBuffers& buffers, const Lane& lane,
                      RunBuffers* piece) const;
  absl::StatusOr<RunTimes> RunShare(const Share& share,
                                    const RunBuffers& buffers,
                                    Lane* lane) const;
  absl::StatusOr<RunTimes> RunLane(const RunBuffers& buffers, Lane lane) const;
  void AddUpAll(const RunBuffers& buffers) const;

  const PiecePlaces places_;
  const int threads_;
  const std::string implementation_;
};

void PartitionedPlan::LendWeightForm(size_t form, const RunBuffers& buffers,
                                     const Lane& lane,
                                     RunBuffers* piece) const {
  const WeightForm& place = places_.weight_forms[form];
  const bool is_first =
      lane.begin <= place.first_share && place.first_share < lane.end;
  std::byte* at = nullptr;
  if (!buffers.prepared_weight.empty() &&
      (is_first || buffers.weight_is_prepared)) {
    at = buffers.prepared_weight.data() + place.offset;
  } else if (place.core_offset) {
    at = lane.core + *place.core_offset;
  } else {
    return;
  }
  piece->prepared_weight = absl::MakeSpan(at, place.bytes);
  piece->weight_is_prepared = buffers.weight_is_prepared || lane.has_form[form];
}

absl::StatusOr<RunTimes> PartitionedPlan::RunShare(const Share& share,
                                                   const RunBuffers& buffers,
                                                   Lane* lane) const {
  const absl::Time start = absl::Now();
  std::byte* const core = lane->core;
  RunBuffers own(kOperandCount);
  const auto locate = [&](const Place& place, void* caller) -> void* {
    switch (place.where) {
      case Place::Where::kCaller:
        return static_cast<std::byte*>(caller) + place.offset;
      case Place::Where::kShared:
        return buffers.scratch.data() + place.offset;
      case Place::Where::kCore:
        return core + place.offset;
      case Place::Where::kPiece:
        break;
    }
    return core + places_.core.size() + place.offset;
  };
  for (size_t i = 0; i < share.operands.size(); ++i) {
    if (!share.operands[i] ||
        (i == kWeightIndex && buffers.weight_is_prepared)) {
      continue;
    }
    const Place& place = *share.operands[i];
    void* at = locate(place, const_cast<void*>(buffers.operands[i]));
    if (place.copy) place.copy->Run(buffers.operands[i], at);
    own.operands[i] = at;
  }
  for (size_t i = 0; i < share.results.size(); ++i) {
    own.results.push_back(
        locate(share.results[i], buffers.results[share.result_indices[i]]));
  }
  own.scratch = absl::MakeSpan(core + places_.core.size() + share.scratch,
                               share.plan->scratch_bytes());
  if (share.weight_form) {
    LendWeightForm(*share.weight_form, buffers, *lane, &own);
    lane->has_form[*share.weight_form] = true;
  }
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

absl::StatusOr<RunTimes> PartitionedPlan::RunLane(const RunBuffers& buffers,
                                                  Lane lane) const {
  RunTimes sum;
  const absl::Time start = absl::Now();
  for (const Conversion& conversion : places_.conversions) {
    if (conversion.operand == Operand::kWeight && buffers.weight_is_prepared) {
      continue;
    }
    conversion.reorder.Run(buffers.operands[PositionOf(conversion.operand)],
                           lane.core + conversion.offset);
  }
  sum.reorder = absl::Now() - start;
  for (size_t i = lane.begin; i < lane.end; ++i) {
    ASSIGN_OR_RETURN(const RunTimes times,
                     RunShare(places_.shares[i], buffers, &lane));
    sum.reorder += times.reorder;
    sum.compute += times.compute;
  }
  return sum;
}

void PartitionedPlan::AddUpAll(const RunBuffers& buffers) const {
  constexpr int64_t kGrain = 16 << 10;
  for (const Sum& sum : places_.sums) {
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
  std::vector<absl::StatusOr<RunTimes>> outcomes(places_.shares.size(),
                                                 RunTimes());
  ParallelFor(threads_, std::ssize(places_.shares), 1,
              [&](int index, int64_t begin, int64_t end) {
                std::byte* core = buffers.scratch.data() +
                                  places_.shared.size() +
                                  index * places_.core_bytes();
                outcomes[begin] = RunLane(
                    buffers,
                    {core, static_cast<size_t>(begin), static_cast<size_t>(end),
                     std::vector<bool>(places_.weight_forms.size())});
              });
  const absl::Time computed = absl::Now();
  RunTimes times;
  for (const absl::StatusOr<RunTimes>& outcome : outcomes) {
    RETURN_IF_ERROR(outcome.status());
    times.reorder += outcome->reorder / threads_;
  }
  times.compute =
      std::max(computed - start - times.reorder, absl::ZeroDuration());
  AddUpAll(buffers);
  times.reorder += absl::Now() - computed;
  return times;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> MakePartitionedPlan(
    const ConvOperation& operation, const Partition& partition,
    const ComputeOptions& options, const PiecePlanner& planner) {
  ASSIGN_OR_RETURN(PiecePlaces places,
                   PlacePieces(operation, partition, options, planner));
  return std::make_unique<PartitionedPlan>(std::move(places), partition,
                                           options.threads);
}

}  // namespace convgrad::onednn

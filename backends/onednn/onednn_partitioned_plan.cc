#include "backends/onednn/onednn_partitioned_plan.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/element_convert.h"
#include "backends/core/status.h"
#include "backends/onednn/onednn_threads.h"

namespace convgrad::onednn {
namespace {

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
  int64_t resident_bytes() const override { return places_.resident_bytes; }
  absl::string_view implementation() const override { return implementation_; }

 private:
  absl::StatusOr<RunTimes> RunShare(const Share& share,
                                    const RunBuffers& buffers,
                                    std::byte* core) const;
  // Runs the pieces [begin, end) one after the other, in the core's scratch.
  absl::StatusOr<RunTimes> RunLane(const RunBuffers& buffers, std::byte* core,
                                   int64_t begin, int64_t end) const;
  void AddUpAll(const RunBuffers& buffers) const;

  const PiecePlaces places_;
  const int threads_;
  const std::string implementation_;
};

absl::StatusOr<RunTimes> PartitionedPlan::RunShare(const Share& share,
                                                   const RunBuffers& buffers,
                                                   std::byte* core) const {
  const absl::Time start = absl::Now();
  RunBuffers own;
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
  own.scratch = absl::MakeSpan(core + places_.core.size() + share.scratch,
                               share.plan->scratch_bytes());
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
                                                  std::byte* core,
                                                  int64_t begin,
                                                  int64_t end) const {
  RunTimes sum;
  const absl::Time start = absl::Now();
  for (const Conversion& conversion : places_.conversions) {
    conversion.reorder.Run(buffers.operand(conversion.operand),
                           core + conversion.offset);
  }
  sum.reorder = absl::Now() - start;
  for (int64_t i = begin; i < end; ++i) {
    ASSIGN_OR_RETURN(const RunTimes times,
                     RunShare(places_.shares[i], buffers, core));
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
              [&](int lane, int64_t begin, int64_t end) {
                std::byte* core = buffers.scratch.data() +
                                  places_.shared.size() +
                                  lane * places_.core_bytes();
                outcomes[begin] = RunLane(buffers, core, begin, end);
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
    const ConvOperation& operation, const Partition& partition, int threads,
    const PiecePlanner& planner) {
  ASSIGN_OR_RETURN(PiecePlaces places,
                   PlacePieces(operation, partition, threads, planner));
  return std::make_unique<PartitionedPlan>(std::move(places), partition,
                                           threads);
}

}  // namespace convgrad::onednn

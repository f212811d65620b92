#include "backends/onednn/convolutions/onednn_partitioned_plan.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "backends/kernels/copies/element_convert.h"
#include "backends/onednn/library/onednn_threads.h"

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

// The pieces that one core runs one after the other.
struct CoreRun {
  std::byte* core;  // its scratch
  size_t begin, end;
  std::vector<bool> has_form;  // by weight form
};

class PartitionedPlan final : public Plan {
 public:
  PartitionedPlan(PlannedPieces planned, const Partition& partition,
                  int threads)
      : planned_(std::move(planned)),
        threads_(threads),
        implementation_(absl::StrCat(ToString(partition), "(",
                                     planned_.pieces[0].plan->implementation(),
                                     ")")) {}

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override;
  int64_t scratch_bytes() const override {
    return planned_.shared.size() + threads_ * planned_.core_bytes();
  }
  int64_t prepared_weight_bytes() const override {
    return planned_.prepared_weight.size();
  }
  std::vector<std::string> reference_steps() const override {
    return planned_.pieces[0].plan->reference_steps();
  }
  int64_t resident_bytes() const override { return planned_.resident_bytes; }
  absl::string_view implementation() const override { return implementation_; }

 private:
  void LendWeightForm(size_t form, const RunBuffers& buffers,
                      const CoreRun& run, RunBuffers* piece) const;
  absl::StatusOr<RunTimes> RunPiece(const PlannedPiece& piece,
                                    const RunBuffers& buffers,
                                    CoreRun* run) const;
  absl::StatusOr<RunTimes> RunCore(const RunBuffers& buffers,
                                   CoreRun run) const;
  void AddUpAll(const RunBuffers& buffers) const;

  const PlannedPieces planned_;
  const int threads_;
  const std::string implementation_;
};

void PartitionedPlan::LendWeightForm(size_t form, const RunBuffers& buffers,
                                     const CoreRun& run,
                                     RunBuffers* piece) const {
  const WeightForm& weight = planned_.weight_forms[form];
  const bool is_first =
      run.begin <= weight.first_piece && weight.first_piece < run.end;
  std::byte* at = nullptr;
  if (!buffers.prepared_weight.empty() &&
      (is_first || buffers.weight_is_prepared)) {
    at = buffers.prepared_weight.data() + weight.offset;
  } else if (weight.core_offset) {
    at = run.core + *weight.core_offset;
  } else {
    return;
  }
  piece->prepared_weight = absl::MakeSpan(at, weight.bytes);
  piece->weight_is_prepared = buffers.weight_is_prepared || run.has_form[form];
}

absl::StatusOr<RunTimes> PartitionedPlan::RunPiece(const PlannedPiece& piece,
                                                   const RunBuffers& buffers,
                                                   CoreRun* run) const {
  const absl::Time start = SteadyNow();
  std::byte* const core = run->core;
  RunBuffers own(kOperandCount);
  const auto locate = [&](const PieceTensor& tensor, void* caller) -> void* {
    switch (tensor.where) {
      case PieceTensor::Where::kCaller:
        return static_cast<std::byte*>(caller) + tensor.offset;
      case PieceTensor::Where::kShared:
        return buffers.scratch.data() + tensor.offset;
      case PieceTensor::Where::kPiece:
        break;
    }
    return core + planned_.core.size() + tensor.offset;
  };
  const bool has_weight =
      buffers.weight_is_prepared ||
      (piece.weight_form && run->has_form[*piece.weight_form]);
  for (size_t i = 0; i < piece.operands.size(); ++i) {
    if (!piece.operands[i] || (i == kWeightIndex && has_weight)) continue;
    const PieceTensor& tensor = *piece.operands[i];
    void* at = locate(tensor, const_cast<void*>(buffers.operands[i]));
    if (tensor.copy) tensor.copy->Run(buffers.operands[i], at);
    own.operands[i] = at;
  }
  for (size_t i = 0; i < piece.results.size(); ++i) {
    own.results.push_back(
        locate(piece.results[i], buffers.results[piece.result_indices[i]]));
  }
  own.scratch = absl::MakeSpan(core + planned_.core.size() + piece.scratch,
                               piece.plan->scratch_bytes());
  if (piece.weight_form) {
    LendWeightForm(*piece.weight_form, buffers, *run, &own);
    run->has_form[*piece.weight_form] = true;
  }
  const absl::Time loaded = SteadyNow();
  ASSIGN_OR_RETURN(RunTimes times, piece.plan->Run(own));
  const absl::Time computed = SteadyNow();
  for (size_t i = 0; i < piece.results.size(); ++i) {
    const auto& copy = piece.results[i].copy;
    if (copy)
      copy->Run(own.results[i], buffers.results[piece.result_indices[i]]);
  }
  times.reorder += loaded - start + (SteadyNow() - computed);
  return times;
}

absl::StatusOr<RunTimes> PartitionedPlan::RunCore(const RunBuffers& buffers,
                                                  CoreRun run) const {
  RunTimes sum;
  for (size_t i = run.begin; i < run.end; ++i) {
    ASSIGN_OR_RETURN(const RunTimes times,
                     RunPiece(planned_.pieces[i], buffers, &run));
    sum.reorder += times.reorder;
    sum.compute += times.compute;
    sum.reference_steps += times.reference_steps;
  }
  return sum;
}

void PartitionedPlan::AddUpAll(const RunBuffers& buffers) const {
  constexpr int64_t kGrain = 16 << 10;
  for (const Sum& sum : planned_.sums) {
    ParallelFor(threads_, sum.count, kGrain,
                [&](int, int64_t begin, int64_t end) {
                  AddUp(sum, buffers.scratch.data(), begin, end,
                        static_cast<std::byte*>(buffers.results[sum.index]));
                });
  }
}

absl::StatusOr<RunTimes> PartitionedPlan::Run(const RunBuffers& buffers) const {
  UseThreads(threads_);
  const absl::Time start = SteadyNow();
  std::vector<absl::StatusOr<RunTimes>> outcomes(planned_.pieces.size(),
                                                 RunTimes());
  ParallelFor(threads_, std::ssize(planned_.pieces), 1,
              [&](int index, int64_t begin, int64_t end) {
                std::byte* core = buffers.scratch.data() +
                                  planned_.shared.size() +
                                  index * planned_.core_bytes();
                outcomes[begin] = RunCore(
                    buffers,
                    {core, static_cast<size_t>(begin), static_cast<size_t>(end),
                     std::vector<bool>(planned_.weight_forms.size())});
              });
  const absl::Time computed = SteadyNow();
  RunTimes times;
  for (const absl::StatusOr<RunTimes>& outcome : outcomes) {
    RETURN_IF_ERROR(outcome.status());
    times.reorder += outcome->reorder / threads_;
    times.reference_steps += outcome->reference_steps;
  }
  times.compute =
      std::max(computed - start - times.reorder, absl::ZeroDuration());
  AddUpAll(buffers);
  times.reorder += SteadyNow() - computed;
  return times;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> MakePartitionedPlan(
    const ConvOperation& operation, const Partition& partition,
    const ComputeOptions& options, const PiecePlanner& planner) {
  ASSIGN_OR_RETURN(PlannedPieces planned,
                   PlanPieces(operation, partition, options, planner));
  return std::make_unique<PartitionedPlan>(std::move(planned), partition,
                                           options.threads);
}

}  // namespace convgrad::onednn

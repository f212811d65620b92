#include "backends/onednn/networks/steps/norms/network_statistics.h"

#include <utility>

#include "backends/core/next_count.h"
#include "backends/kernels/operators/batch_norm.h"

namespace convgrad::onednn {
namespace {

constexpr absl::string_view kKind = "batch_norm statistics";

// The running statistics before and after a run; kNoBuffer if there are none.
struct RunningStatistics {
  BufferId mean, variance, count;
  BufferId new_mean = kNoBuffer;
  BufferId new_variance = kNoBuffer;
  BufferId new_count = kNoBuffer;
  double momentum;
  // True if all runs have the same weight, instead of a momentum.
  bool is_cumulative;
};

// Writes the new running statistics, with the unbiased variance. The cumulative
// average includes this run.
void UpdateStatistics(const RunContext& context, const ChannelBlocks& blocks,
                      const NormStatistics& batch,
                      const RunningStatistics& running) {
  const int64_t count = running.count == kNoBuffer
                            ? 1
                            : NextCount(*context.Read<int64_t>(running.count));
  if (running.new_count != kNoBuffer) {
    *context.Write<int64_t>(running.new_count) = count;
  }
  const double factor =
      running.is_cumulative ? 1 / static_cast<double>(count) : running.momentum;
  const auto elements = static_cast<double>(blocks.batch * blocks.spatial);
  const auto update = [&](BufferId from, BufferId to, BufferId of_batch,
                          double correction) {
    if (to == kNoBuffer) return;
    for (int64_t c = 0; c < blocks.channels; ++c) {
      const double now = context.Read<double>(of_batch)[c] * correction;
      const double old = context.Read<float>(from)[c];
      context.Write<float>(to)[c] =
          static_cast<float>(old * (1 - factor) + now * factor);
    }
  };
  update(running.mean, running.new_mean, batch.mean, 1);
  update(running.variance, running.new_variance, batch.variance,
         elements / (elements - 1));
}

void AddUpdate(const ProgramStep& program_step, const ChannelBlocks& blocks,
               const NormStatistics& batch, NetworkBuilder* builder) {
  RunningStatistics running = {
      .mean = builder->Parameter(OperandAt(program_step, 3)),
      .variance = builder->Parameter(OperandAt(program_step, 4)),
      .count = builder->Parameter(OperandAt(program_step, 5)),
      .momentum = FloatAttribute(program_step, "momentum"),
      .is_cumulative = WordAttribute(program_step, "momentum") == "none"};
  Step step = {.kind = kKind, .reads = {batch.mean, batch.variance}};
  const auto place = [&](size_t operand, BufferId old) {
    if (old == kNoBuffer) return kNoBuffer;
    step.reads.push_back(old);
    const BufferId updated =
        builder->NewStatistic(OperandAt(program_step, operand));
    step.writes.push_back(updated);
    return updated;
  };
  running.new_mean = place(3, running.mean);
  running.new_variance = place(4, running.variance);
  running.new_count = place(5, running.count);
  step.function = [=](const RunContext& context) {
    UpdateStatistics(context, blocks, batch, running);
  };
  builder->schedule().Add(std::move(step));
}

void AddBatchStatistics(const NetworkTensor& x, const NormStatistics& batch,
                        NetworkBuilder* builder) {
  const BufferId scratch =
      builder->schedule().AddArray<double>(BatchNormScratch(x.blocks));
  builder->schedule().Add(
      kKind, {x.buffer}, {batch.mean, batch.variance, scratch},
      [=](const RunContext& context) {
        BatchNormStatistics(x.blocks, context.At(x.buffer),
                            context.Write<double>(scratch), context.parts(),
                            {context.Write<double>(batch.mean),
                             context.Write<double>(batch.variance)});
      });
}

// Converts to doubles of all padded channels, as the kernels require.
void AddRunningStatistics(const ProgramStep& step, const ChannelBlocks& blocks,
                          const NormStatistics& widened,
                          NetworkBuilder* builder) {
  const BufferId mean = builder->Parameter(OperandAt(step, 3));
  const BufferId variance = builder->Parameter(OperandAt(step, 4));
  builder->schedule().Add(
      kKind, {mean, variance}, {widened.mean, widened.variance},
      [=](const RunContext& context) {
        const auto widen = [&](BufferId from, BufferId to) {
          for (int64_t c = 0; c < blocks.padded_channels(); ++c) {
            context.Write<double>(to)[c] =
                c < blocks.channels ? context.Read<float>(from)[c] : 0;
          }
        };
        widen(mean, widened.mean);
        widen(variance, widened.variance);
      });
}

}  // namespace

NormStatistics AddStatistics(const ProgramStep& step, const NetworkTensor& x,
                             NetworkBuilder* builder) {
  const int64_t channels = x.blocks.padded_channels();
  const NormStatistics statistics = {
      builder->schedule().AddArray<double>(channels),
      builder->schedule().AddArray<double>(channels)};
  if (IsTraining(step)) {
    AddBatchStatistics(x, statistics, builder);
    AddUpdate(step, x.blocks, statistics, builder);
  } else {
    AddRunningStatistics(step, x.blocks, statistics, builder);
  }
  return statistics;
}

}  // namespace convgrad::onednn

#include "backends/onednn/onednn_conv_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/onednn/onednn_conv_program.h"
#include "backends/onednn/onednn_partitioned_plan.h"
#include "backends/onednn/onednn_threads.h"

namespace convgrad::onednn {
namespace {

class ProgramPlan final : public Plan {
 public:
  explicit ProgramPlan(ConvProgram made)
      : program_(std::move(made.program)),
        implementation_(std::move(made.implementation)) {}

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    return program_.Run(buffers);
  }
  int64_t scratch_bytes() const override { return program_.scratch_bytes(); }
  int64_t prepared_weight_bytes() const override {
    return program_.prepared_weight_bytes();
  }
  const OperandGather* gather(size_t position) const override {
    return program_.gather(position);
  }
  int64_t resident_bytes() const override { return program_.resident_bytes(); }
  absl::string_view implementation() const override { return implementation_; }

 private:
  const Program program_;
  const std::string implementation_;
};

Partition ChoosePartition(const ConvOperation& operation, int threads,
                          const PartitionPreference& preference) {
  if (operation.problem.batch == 0) return {};
  const std::vector<Partition> possible = PartitionsOf(operation, threads);
  if (possible.empty()) return {};
  const auto preferred = preference(operation, threads);
  if (!preferred) return PredictPartition(operation, possible, threads);
  const bool can =
      std::find(possible.begin(), possible.end(), preferred) != possible.end();
  return can ? *preferred : Partition();
}

}  // namespace

Preferences PreferencesLike(absl::string_view implementation) {
  // "batch*4(forward=jit:avx512_core/nxc ...)", or what is in the brackets.
  const std::vector<absl::string_view> words =
      absl::StrSplit(implementation, absl::ByAnyChar(" ()"), absl::SkipEmpty());
  Preferences preferences;
  preferences.format = [words](const PassSpec& spec) -> std::optional<Format> {
    for (absl::string_view word : words) {
      if (!absl::StartsWith(word, absl::StrCat(NameOf(spec.pass), "="))) {
        continue;
      }
      return ParseFormat(word.substr(word.rfind('/') + 1));
    }
    return std::nullopt;
  };
  preferences.partition = [words](const ConvOperation&, int /*threads*/) {
    return std::optional<Partition>(
        words.empty() ? Partition()
                      : ParsePartition(words[0]).value_or(Partition()));
  };
  return preferences;
}

absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, ComputeOptions options,
    const Preferences& preferences) {
  if (IsSmall(operation)) options.threads = 1;
  const int threads = options.threads;
  UseThreads(threads);
  const Partition partition =
      ChoosePartition(operation, threads, preferences.partition);
  if (partition.axis != CutAxis::kNone) {
    return MakePartitionedPlan(
        operation, partition, options, [&](const ConvOperation& piece) {
          return MakeConvPlan(piece, OneThread(options), preferences);
        });
  }
  ASSIGN_OR_RETURN(ConvProgram made,
                   MakeConvProgram(operation, options, preferences.format));
  return std::make_unique<ProgramPlan>(std::move(made));
}

}  // namespace convgrad::onednn

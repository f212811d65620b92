#include "backends/onednn/onednn_conv_plan.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/onednn/onednn_conv_program.h"
#include "backends/onednn/onednn_partitioned_plan.h"
#include "backends/onednn/onednn_threads.h"

namespace convgrad::onednn {
namespace {

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
  return MakeConvProgram(operation, options, preferences.format);
}

}  // namespace convgrad::onednn

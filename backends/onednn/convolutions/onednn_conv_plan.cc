#include "backends/onednn/convolutions/onednn_conv_plan.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/onednn/convolutions/onednn_conv_steps.h"
#include "backends/onednn/convolutions/onednn_partition.h"
#include "backends/onednn/convolutions/onednn_partitioned_plan.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_threads.h"

namespace convgrad::onednn {
namespace {

// Returns the words of an implementation() such as
// "batch*4(forward=jit:avx512_core/nxc ...)", with or without the partition
// around the brackets.
std::vector<absl::string_view> WordsOf(absl::string_view implementation) {
  return absl::StrSplit(implementation, absl::ByAnyChar(" ()"),
                        absl::SkipEmpty());
}

// Returns the format in which a plan with this implementation() computes
// `pass`.
std::optional<Format> FormatIn(absl::string_view implementation, Pass pass) {
  for (absl::string_view word : WordsOf(implementation)) {
    if (absl::StartsWith(word, absl::StrCat(NameOf(pass), "="))) {
      return ParseFormat(word.substr(word.rfind('/') + 1));
    }
  }
  return std::nullopt;
}

// Returns the partition of a plan with this implementation().
Partition PartitionIn(absl::string_view implementation) {
  const std::vector<absl::string_view> words = WordsOf(implementation);
  return words.empty() ? Partition()
                       : ParsePartition(words[0]).value_or(Partition());
}

Partition ChoosePartition(const ConvOperation& operation, int threads,
                          absl::string_view like) {
  const std::vector<Partition> possible = PartitionsOf(operation, threads);
  if (possible.empty()) return {};
  if (like.empty()) return PredictPartition(operation, possible, threads);
  const Partition wanted = PartitionIn(like);
  const bool can =
      std::find(possible.begin(), possible.end(), wanted) != possible.end();
  return can ? wanted : Partition();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> MakeConvPlan(
    const ConvOperation& operation, ComputeOptions options,
    absl::string_view like) {
  if (IsSmall(operation)) options.threads = 1;
  const int threads = options.threads;
  UseThreads(threads);
  const Partition partition = ChoosePartition(operation, threads, like);
  if (partition.axis != CutAxis::kNone) {
    return MakePartitionedPlan(
        operation, partition, options, [&](const ConvOperation& piece) {
          return MakeConvPlan(piece, OneThread(options), like);
        });
  }
  return BuildConvPlan(operation, options, [like](const PassSpec& spec) {
    return FormatIn(like, spec.pass);
  });
}

}  // namespace convgrad::onednn

#include "backends/onednn/onednn_tuning.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "backends/onednn/onednn_conv_plan.h"
#include "backends/onednn/onednn_partitioned_plan.h"
#include "backends/onednn/onednn_threads.h"

namespace convgrad::onednn {
namespace {

constexpr int kRounds = 15;
constexpr int kFewestRounds = 3;
// Slow ones needn't be timed so often.
constexpr absl::Duration kEnough = absl::Milliseconds(100);
// What is predicted to take so many times longer than the fastest isn't timed:
// the library's plain loops may take minutes.
constexpr double kHopeless = 20;
// Two passes have nine pairs of formats, most of them for nothing.
constexpr double kUnlikely = 3;
// What isn't faster than this isn't worth another way.
constexpr double kConvincing = 0.98;
// More than a core's second-level cache.
constexpr int64_t kCacheBytes = int64_t{4} << 20;

// Aligned memory of small finite numbers, whatever the dtype: zeroed pages that
// nobody wrote are one page to the caches.
class Bytes {
 public:
  explicit Bytes(int64_t size) : lines_((size + 63) / 64) {
    if (size > 0) std::memset(lines_.data(), 0x3c, lines_.size() * 64);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

// A way to compute an operation, ready to be timed.
struct Contender {
  std::vector<std::string> choices;  // by key
  std::unique_ptr<Plan> plan;
  std::vector<absl::Duration> times = {};

  absl::Duration median() {
    const auto middle = times.begin() + std::ssize(times) / 2;
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }
};

// All ways to compute an operation that are to be compared.
struct Race {
  std::vector<std::string> keys;  // what is chosen: a format for every pass, or
                                  // the operation's partition
  std::vector<Contender> contenders;
};

std::optional<Partition> Uncut(const ConvOperation&, int /*threads*/) {
  return Partition();
}

absl::StatusOr<std::vector<PassSpec>> SpecsOf(const ConvOperation& operation,
                                              const ComputeOptions& options) {
  std::vector<PassSpec> specs;
  RETURN_IF_ERROR(MakeConvPlan(operation, options,
                               {[&](const PassSpec& pass) {
                                  specs.push_back(pass);
                                  return std::nullopt;
                                },
                                Uncut})
                      .status());
  return specs;
}

// Returns the formats of a pass that may be the fastest.
absl::StatusOr<std::vector<Format>> FormatsOf(const PassSpec& spec,
                                              double patience) {
  ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                   ListCandidates(spec));
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    fastest = std::min(fastest, candidate.predicted_seconds);
  }
  std::vector<Format> formats;
  for (const Candidate& candidate : candidates) {
    if (candidate.predicted_seconds <= patience * fastest) {
      formats.push_back(candidate.format);
    }
  }
  return formats;
}

absl::StatusOr<std::unique_ptr<Plan>> PlanIn(
    const ConvOperation& operation, const ComputeOptions& options,
    const Race& race, const std::vector<Format>& formats) {
  return MakeConvPlan(
      operation, options,
      {[&](const PassSpec& spec) {
         const auto key =
             std::find(race.keys.begin(), race.keys.end(), KeyOf(spec));
         return std::optional<Format>(formats[key - race.keys.begin()]);
       },
       Uncut});
}

absl::StatusOr<Race> MakeFormatRace(const ConvOperation& operation,
                                    const ComputeOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<PassSpec> specs,
                   SpecsOf(operation, options));
  Race race;
  std::vector<std::vector<Format>> combinations(specs.empty() ? 0 : 1);
  for (const PassSpec& spec : specs) {
    race.keys.push_back(KeyOf(spec));
    ASSIGN_OR_RETURN(
        const std::vector<Format> formats,
        FormatsOf(spec, specs.size() == 1 ? kHopeless : kUnlikely));
    std::vector<std::vector<Format>> longer;
    for (const std::vector<Format>& combination : combinations) {
      for (Format format : formats) {
        longer.push_back(combination);
        longer.back().push_back(format);
      }
    }
    combinations = std::move(longer);
  }
  for (std::vector<Format>& formats : combinations) {
    ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan,
                     PlanIn(operation, options, race, formats));
    std::vector<std::string> names;
    for (Format format : formats) names.emplace_back(NameOf(format));
    race.contenders.push_back({std::move(names), std::move(plan)});
  }
  return race;
}

int64_t ScratchBytes(const Race& race) {
  int64_t bytes = 0;
  for (const Contender& contender : race.contenders) {
    bytes = std::max(bytes, contender.plan->scratch_bytes());
  }
  return bytes;
}

int64_t BytesOf(const ConvOperation& operation, const Race& race) {
  int64_t bytes = ScratchBytes(race);
  for (const auto& operand : operation.operands) {
    if (operand) bytes += *ByteSize(*operand);
  }
  for (const ResultRequest& request : operation.results) {
    bytes += *ByteSize(request.descriptor);
  }
  return bytes;
}

// Writes over what the run before left in each core's own caches: in service,
// other operations do.
void Evict(int threads, Bytes* junk) {
  ParallelFor(threads, threads, 1, [&](int, int64_t begin, int64_t end) {
    std::memset(junk->data() + begin * kCacheBytes, 1,
                (end - begin) * kCacheBytes);
  });
}

absl::Status TimeAll(const ConvOperation& operation, int threads, Race* race) {
  std::vector<Bytes> memory;
  RunBuffers buffers(kOperandCount);
  for (Operand which : kAllOperands) {
    if (!operation.operand(which)) continue;
    memory.emplace_back(*ByteSize(*operation.operand(which)));
    buffers.operands[static_cast<size_t>(which)] = memory.back().data();
  }
  for (const ResultRequest& request : operation.results) {
    memory.emplace_back(*ByteSize(request.descriptor));
    buffers.results.push_back(memory.back().data());
  }
  Bytes scratch(ScratchBytes(*race));
  buffers.scratch = absl::MakeSpan(scratch.data(), ScratchBytes(*race));
  Bytes junk(threads * kCacheBytes);
  // In turns, so that a disturbance meets all. The first round warms up.
  const absl::Time start = absl::Now();
  for (int round = 0; round <= kRounds; ++round) {
    for (Contender& contender : race->contenders) {
      Evict(threads, &junk);
      const absl::Time begin = absl::Now();
      RETURN_IF_ERROR(contender.plan->Run(buffers).status());
      const absl::Duration took = absl::Now() - begin;
      if (round > 0) contender.times.push_back(took);
    }
    if (round >= kFewestRounds && absl::Now() - start > kEnough) break;
  }
  return absl::OkStatus();
}

// The part of an operation that gives some of its results.
ConvOperation PartOf(const ConvOperation& operation,
                     std::vector<ResultRequest> results) {
  ConvOperation part = operation;
  part.results = std::move(results);
  DropUnneeded(&part);
  return part;
}

absl::Status Decide(const ConvOperation& operation, int threads,
                    int64_t max_bytes, Race race, Choices* choices) {
  if (BytesOf(operation, race) > max_bytes) return absl::OkStatus();
  RETURN_IF_ERROR(TimeAll(operation, threads, &race));
  Contender* fastest = &race.contenders[0];
  for (Contender& contender : race.contenders) {
    if (contender.median() < kConvincing * fastest->median()) {
      fastest = &contender;
    }
  }
  for (size_t i = 0; i < race.keys.size(); ++i) {
    choices->Put(race.keys[i], fastest->choices[i]);
  }
  return absl::OkStatus();
}

absl::Status TuneFormats(const ConvOperation& part,
                         const ComputeOptions& options, int64_t max_bytes,
                         Choices* choices) {
  ASSIGN_OR_RETURN(Race race, MakeFormatRace(part, options));
  if (race.contenders.empty() || choices->Has(race.keys[0])) {
    return absl::OkStatus();
  }
  return Decide(part, options.threads, max_bytes, std::move(race), choices);
}

absl::Status TunePartition(const ConvOperation& part,
                           const ComputeOptions& options, int64_t max_bytes,
                           Choices* choices) {
  std::vector<Partition> partitions = PartitionsOf(part, options.threads);
  Race race;
  race.keys = {KeyOf(part, options.threads)};
  if (partitions.empty() || IsSmall(part) || choices->Has(race.keys[0])) {
    return absl::OkStatus();
  }
  const FormatPreference follow = [&](const PassSpec& spec) {
    return choices->FindFormat(KeyOf(spec));
  };
  ASSIGN_OR_RETURN(auto whole, MakeConvPlan(part, options, {follow, Uncut}));
  race.contenders.push_back({{ToString(Partition())}, std::move(whole)});
  for (const Partition& partition : partitions) {
    ASSIGN_OR_RETURN(
        auto plan,
        MakePartitionedPlan(
            part, partition, options,
            [&](const ConvOperation& piece)
                -> absl::StatusOr<std::unique_ptr<Plan>> {
              RETURN_IF_ERROR(
                  TuneFormats(piece, OneThread(options), max_bytes, choices));
              return MakeConvPlan(piece, OneThread(options), {follow, Uncut});
            }));
    race.contenders.push_back({{ToString(partition)}, std::move(plan)});
  }
  return Decide(part, options.threads, max_bytes, std::move(race), choices);
}

absl::Status TunePart(const ConvOperation& part, const ComputeOptions& options,
                      int64_t max_bytes, Choices* choices) {
  RETURN_IF_ERROR(TuneFormats(part, options, max_bytes, choices));
  return TunePartition(part, options, max_bytes, choices);
}

}  // namespace

absl::Status Tune(const ConvOperation& operation, const ComputeOptions& options,
                  int64_t max_bytes, Choices* choices) {
  std::vector<ResultRequest> computed;
  for (const ResultRequest& request : operation.results) {
    if (request.which == Result::kGradBias ||
        request.which == Result::kGradResidual) {
      continue;
    }
    computed.push_back(request);
    RETURN_IF_ERROR(
        TunePart(PartOf(operation, {request}), options, max_bytes, choices));
  }
  if (computed.size() < 2) return absl::OkStatus();
  return TunePart(PartOf(operation, std::move(computed)), options, max_bytes,
                  choices);
}

}  // namespace convgrad::onednn

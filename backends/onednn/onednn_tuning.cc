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
#include "backends/onednn/onednn_threads.h"

namespace convgrad::onednn {
namespace {

constexpr int kRounds = 5;
// Slow ones needn't be timed so often.
constexpr absl::Duration kEnough = absl::Milliseconds(500);
// What is predicted to take so many times longer than the fastest isn't timed:
// the library's plain loops may take minutes.
constexpr double kHopeless = 20;
// Two passes have nine pairs of formats, most of them for nothing.
constexpr double kUnlikely = 3;
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

// An operation with its passes in some formats, ready to be timed.
struct Contender {
  std::vector<Format> formats;  // by pass
  std::unique_ptr<Plan> plan;
  absl::Duration best = absl::InfiniteDuration();
};

// An operation's passes, in every format that there is.
struct Race {
  std::vector<std::string> keys;  // by pass
  std::vector<Contender> contenders;
};

absl::StatusOr<std::vector<PassSpec>> SpecsOf(const ConvOperation& operation,
                                              int threads) {
  std::vector<PassSpec> specs;
  RETURN_IF_ERROR(MakeConvPlan(operation, threads, [&](const PassSpec& pass) {
                    specs.push_back(pass);
                    return std::nullopt;
                  }).status());
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
    const ConvOperation& operation, int threads, const Race& race,
    const std::vector<Format>& formats) {
  return MakeConvPlan(operation, threads, [&](const PassSpec& spec) {
    const auto key = std::find(race.keys.begin(), race.keys.end(), KeyOf(spec));
    return std::optional<Format>(formats[key - race.keys.begin()]);
  });
}

absl::StatusOr<Race> MakeRace(const ConvOperation& operation, int threads) {
  ASSIGN_OR_RETURN(const std::vector<PassSpec> specs,
                   SpecsOf(operation, threads));
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
                     PlanIn(operation, threads, race, formats));
    race.contenders.push_back({std::move(formats), std::move(plan)});
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
  RunBuffers buffers;
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
      if (round > 0) contender.best = std::min(contender.best, took);
    }
    if (round > 0 && absl::Now() - start > kEnough) break;
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

absl::Status TunePart(const ConvOperation& part, int threads, int64_t max_bytes,
                      FormatChoices* choices) {
  ASSIGN_OR_RETURN(Race race, MakeRace(part, threads));
  if (race.contenders.empty() || choices->Find(race.keys[0])) {
    return absl::OkStatus();
  }
  if (BytesOf(part, race) > max_bytes) return absl::OkStatus();
  RETURN_IF_ERROR(TimeAll(part, threads, &race));
  const auto fastest = std::min_element(
      race.contenders.begin(), race.contenders.end(),
      [](const Contender& a, const Contender& b) { return a.best < b.best; });
  for (size_t i = 0; i < race.keys.size(); ++i) {
    choices->Put(race.keys[i], fastest->formats[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Tune(const ConvOperation& operation, int threads,
                  int64_t max_bytes, FormatChoices* choices) {
  std::vector<ResultRequest> computed;
  for (const ResultRequest& request : operation.results) {
    if (request.which == Result::kGradBias ||
        request.which == Result::kGradResidual) {
      continue;
    }
    computed.push_back(request);
    RETURN_IF_ERROR(
        TunePart(PartOf(operation, {request}), threads, max_bytes, choices));
  }
  if (computed.size() < 2) return absl::OkStatus();
  return TunePart(PartOf(operation, std::move(computed)), threads, max_bytes,
                  choices);
}

}  // namespace convgrad::onednn

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

namespace convgrad::onednn {
namespace {

constexpr int kRounds = 5;
// Slow ones needn't be timed so often.
constexpr absl::Duration kEnough = absl::Milliseconds(500);
// What is predicted to take so many times longer than the fastest isn't timed:
// the library's plain loops may take minutes.
constexpr double kHopeless = 20;

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

// An operation of one pass in one format, ready to be timed.
struct Contender {
  Format format;
  std::unique_ptr<Plan> plan;
  absl::Duration best = absl::InfiniteDuration();
};

// The pass that computes a result, in every format that there is.
struct Race {
  std::string key;
  std::vector<Contender> contenders;
};

absl::StatusOr<Race> MakeRace(const ConvOperation& operation, int threads) {
  std::optional<PassSpec> spec;
  RETURN_IF_ERROR(MakeConvPlan(operation, threads, [&](const PassSpec& pass) {
                    spec = pass;
                    return std::nullopt;
                  }).status());
  Race race;
  if (!spec) return race;  // a batch of 0
  race.key = KeyOf(*spec);
  ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                   ListCandidates(*spec));
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    fastest = std::min(fastest, candidate.predicted_seconds);
  }
  for (const Candidate& candidate : candidates) {
    if (candidate.predicted_seconds > kHopeless * fastest) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan,
                     MakeConvPlan(operation, threads, [&](const PassSpec&) {
                       return candidate.format;
                     }));
    race.contenders.push_back({candidate.format, std::move(plan)});
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

absl::Status TimeAll(const ConvOperation& operation, Race* race) {
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
  // In turns, so that a disturbance meets all. The first round warms up.
  const absl::Time start = absl::Now();
  for (int round = 0; round <= kRounds; ++round) {
    for (Contender& contender : race->contenders) {
      const absl::Time begin = absl::Now();
      RETURN_IF_ERROR(contender.plan->Run(buffers).status());
      const absl::Duration took = absl::Now() - begin;
      if (round > 0) contender.best = std::min(contender.best, took);
    }
    if (round > 0 && absl::Now() - start > kEnough) break;
  }
  return absl::OkStatus();
}

absl::Status TuneResult(const ConvOperation& operation, int threads,
                        int64_t max_bytes, FormatChoices* choices) {
  ASSIGN_OR_RETURN(Race race, MakeRace(operation, threads));
  if (race.contenders.empty() || choices->Find(race.key)) {
    return absl::OkStatus();
  }
  if (BytesOf(operation, race) > max_bytes) return absl::OkStatus();
  RETURN_IF_ERROR(TimeAll(operation, &race));
  const auto fastest = std::min_element(
      race.contenders.begin(), race.contenders.end(),
      [](const Contender& a, const Contender& b) { return a.best < b.best; });
  choices->Put(race.key, fastest->format);
  return absl::OkStatus();
}

}  // namespace

absl::Status Tune(const ConvOperation& operation, int threads,
                  int64_t max_bytes, FormatChoices* choices) {
  for (const ResultRequest& request : operation.results) {
    if (request.which == Result::kGradBias ||
        request.which == Result::kGradResidual) {
      continue;
    }
    ConvOperation pass = operation;
    pass.results = {request};
    DropUnneeded(&pass);
    RETURN_IF_ERROR(TuneResult(pass, threads, max_bytes, choices));
  }
  return absl::OkStatus();
}

}  // namespace convgrad::onednn

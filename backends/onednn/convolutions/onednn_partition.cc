#include "backends/onednn/convolutions/onednn_partition.h"

#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/checked_math.h"

namespace convgrad::onednn {
namespace {

// By CutAxis.
constexpr std::array<absl::string_view, 4> kNames = {"none", "batch", "rows",
                                                     "groups"};

// Pieces up to this size aren't cut further for the caches.
constexpr int64_t kSmallPiece = 128 << 10;
constexpr int kMaxPiecesPerThread = 32;

// Minimum estimated seconds per piece. A piece costs about 10 us beside its
// work. Of the partitions that were fastest in measurements on an EPYC 9004 and
// an Intel Xeon, none had much shorter pieces.
constexpr double kShortestPiece = 200e-6;
// Estimated rates of one core, to estimate the time of a piece.
constexpr double kFlopsPerSecond = 100e9;
constexpr double kBytesPerSecond = 10e9;

// Minimum ratio of a piece's activations to the weight for a cut in which every
// piece reorders the weight and sums its own gradient.
constexpr int64_t kWeights = 4;

constexpr int64_t kFloatBytes = sizeof(float);

// Channels that the library computes together.
constexpr int64_t kLanes = 16;

// Returns the number of units that must stay together.
int64_t GrainOf(const ConvProblem& problem, CutAxis axis) {
  if (axis != CutAxis::kGroups) return 1;
  const int64_t channels =
      std::min(problem.in_channels, problem.out_channels) / problem.groups;
  return CeilDiv(kLanes, channels);
}

// Returns whether no core has much more work than the others.
bool IsFair(const std::vector<int64_t>& bounds) {
  const auto pieces = std::ssize(bounds) - 1;
  int64_t largest = 0;
  for (int64_t i = 0; i < pieces; ++i) {
    if (bounds[i] == bounds[i + 1]) return false;
    largest = std::max(largest, bounds[i + 1] - bounds[i]);
  }
  return largest * pieces * 5 <= bounds.back() * 6;
}

std::vector<TensorDescriptor> TensorsOf(const ConvOperation& operation) {
  std::vector<TensorDescriptor> tensors;
  for (const auto& operand : operation.operands) {
    if (operand) tensors.push_back(*operand);
  }
  for (const ResultRequest& request : operation.results) {
    tensors.push_back(request.descriptor);
  }
  return tensors;
}

bool IsPointwiseRow(const ConvProblem& problem) {
  if (problem.transposed || problem.axes.empty()) return false;
  const SpatialAxis& axis = problem.axes[0];
  return axis.kernel == 1 && axis.pad_begin == 0 && axis.pad_end == 0 &&
         axis.out > axis.stride;
}

bool IsChannelsFirst(const ConvOperation& operation) {
  const std::vector<TensorDescriptor> tensors = TensorsOf(operation);
  return std::none_of(tensors.begin(), tensors.end(),
                      [](const TensorDescriptor& tensor) {
                        return tensor.layout == Layout::kNXC;
                      });
}

// Returns whether the pieces are valid operations and the cut may pay off.
bool Allows(const ConvOperation& operation, CutAxis axis, int threads) {
  const ConvProblem& problem = operation.problem;
  switch (axis) {
    case CutAxis::kNone:
      break;
    case CutAxis::kBatch:
      return problem.batch >= threads;
    case CutAxis::kRows:
      return problem.batch == 1 && IsPointwiseRow(problem);
    case CutAxis::kGroups:
      // In other layouts a group's channels aren't adjacent, and copies cost
      // more than the cut gains.
      return problem.groups >= threads && problem.batch == 1 &&
             IsChannelsFirst(operation);
  }
  return false;
}

// Returns whether every tensor is row-major, and the bias, if any, is per
// channel or a scalar.
bool IsCuttable(const ConvOperation& operation) {
  for (const TensorDescriptor& tensor : TensorsOf(operation)) {
    if (!IsRowMajor(tensor.layout)) return false;
  }
  const ConvProblem& problem = operation.problem;
  if (!problem.bias) return true;
  const Dims bias = BroadcastBiasDims(problem, *problem.bias);
  for (size_t i = 0; i < bias.size(); ++i) {
    if (i != 1 && bias[i] != 1) return false;
  }
  return true;
}

// Returns the f32 bytes of the activations.
int64_t ActivationBytes(const ConvOperation& operation) {
  return kFloatBytes * (ElementCount({.dims = InputDims(operation.problem)}) +
                        ElementCount({.dims = OutputDims(operation.problem)}));
}

// Returns about how long one core takes for the whole operation: the maximum of
// arithmetic and memory traffic.
double SecondsOnOneCore(const ConvOperation& operation) {
  const int64_t flops = operation.flops();
  const int64_t passes =
      flops / 2 / std::max<int64_t>(MultiplyAdds(operation.problem), 1);
  const int64_t bytes = passes * ActivationBytes(operation);
  return std::max(static_cast<double>(flops) / kFlopsPerSecond,
                  static_cast<double>(bytes) / kBytesPerSecond);
}

}  // namespace

std::string ToString(const Partition& partition) {
  std::string text(kNames[static_cast<size_t>(partition.axis)]);
  if (partition.pieces_per_thread > 1) {
    absl::StrAppend(&text, "*", partition.pieces_per_thread);
  }
  return text;
}

std::optional<Partition> ParsePartition(absl::string_view text) {
  Partition partition;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('*', 1));
  const auto* found = std::find(kNames.begin(), kNames.end(), parts.first);
  if (found == kNames.end()) return std::nullopt;
  partition.axis = static_cast<CutAxis>(found - kNames.begin());
  if (parts.first.size() < text.size() &&
      (!absl::SimpleAtoi(parts.second, &partition.pieces_per_thread) ||
       partition.pieces_per_thread < 2 ||
       partition.pieces_per_thread > kMaxPiecesPerThread)) {
    return std::nullopt;
  }
  return partition;
}

int64_t UnitsOf(const ConvProblem& problem, CutAxis axis) {
  switch (axis) {
    case CutAxis::kNone:
      break;
    case CutAxis::kBatch:
      return problem.batch;
    case CutAxis::kRows:
      return problem.axes[0].out;
    case CutAxis::kGroups:
      return problem.groups;
  }
  return 1;
}

std::vector<int64_t> BoundsOf(const ConvProblem& problem,
                              const Partition& partition, int threads) {
  const int64_t units = UnitsOf(problem, partition.axis);
  const int64_t grain = GrainOf(problem, partition.axis);
  const int64_t pieces = int64_t{threads} * partition.pieces_per_thread;
  std::vector<int64_t> bounds;
  for (int64_t i = 0; i < pieces; ++i) {
    bounds.push_back(i * units / pieces / grain * grain);
  }
  bounds.push_back(units);
  return bounds;
}

std::vector<Partition> PartitionsOf(const ConvOperation& operation,
                                    int threads) {
  std::vector<Partition> partitions;
  if (threads < 2 || !IsCuttable(operation)) return partitions;
  const int64_t bytes = ActivationBytes(operation);
  for (const CutAxis axis :
       {CutAxis::kBatch, CutAxis::kRows, CutAxis::kGroups}) {
    if (!Allows(operation, axis, threads)) continue;
    // Tries 1, 4, 16 and the maximum.
    const auto most = static_cast<int>(
        std::min<int64_t>(UnitsOf(operation.problem, axis) /
                              (threads * GrainOf(operation.problem, axis)),
                          kMaxPiecesPerThread));
    for (int more = 1; more <= most;
         more = more < most ? std::min(4 * more, most) : most + 1) {
      const Partition partition = {axis, more};
      if (!IsFair(BoundsOf(operation.problem, partition, threads))) continue;
      partitions.push_back(partition);
      if (bytes / (more * threads) <= kSmallPiece) break;
    }
  }
  return partitions;
}

Partition PredictPartition(const ConvOperation& operation,
                           const std::vector<Partition>& possible,
                           int threads) {
  const int64_t weight =
      kFloatBytes * ElementCount({.dims = WeightDims(operation.problem)});
  const int64_t bytes = ActivationBytes(operation);
  const double seconds = SecondsOnOneCore(operation);
  Partition best;
  for (const Partition& partition : possible) {
    const int pieces = threads * partition.pieces_per_thread;
    if (seconds / pieces < kShortestPiece) continue;
    const int64_t piece = bytes / pieces;
    const bool sums =
        partition.axis == CutAxis::kBatch || partition.axis == CutAxis::kRows;
    if (sums && piece < kWeights * weight) continue;
    if (partition.axis == CutAxis::kRows && IsChannelsFirst(operation)) {
      continue;
    }
    best = partition;
  }
  return best;
}

}  // namespace convgrad::onednn

#include "server/scheduling/nominal_time.h"

#include <algorithm>

namespace convgrad {
namespace {

constexpr double kSliceSeconds = 0.2;

// Of an operation that does nothing: threads that meet, lookups.
constexpr double kFixedSeconds = 50e-6;

// What moving a byte costs, in multiply-adds: 25e9 of them a second stand for
// some 12 GB/s.
constexpr double kMacsPerByte = 2;

// Groups that are narrower than a vector leave lanes of it empty. Depthwise
// kernels, which are written for that, lose less.
double LaneWaste(const ConvProblem& problem) {
  if (problem.groups == 1) return 1;
  const int64_t narrower = std::min(problem.in_channels, problem.out_channels);
  const int64_t lanes = narrower / problem.groups;
  return std::clamp(16.0 / static_cast<double>(lanes), 1.0, 8.0);
}

double SecondsOf(const Backend& backend, const ConvOperation& operation,
                 int threads) {
  const double macs = static_cast<double>(operation.flops()) / 2;
  const double bytes = static_cast<double>(ItemBytes(operation)) *
                           static_cast<double>(operation.problem.batch) +
                       static_cast<double>(AddendBytes(operation));
  return (macs * LaneWaste(operation.problem) + bytes * kMacsPerByte) /
         backend.nominal_macs_per_second(threads);
}

}  // namespace

absl::Duration NominalTime(const Backend& backend,
                           const ConvOperation& operation, int threads) {
  return absl::Seconds(kFixedSeconds + SecondsOf(backend, operation, threads));
}

int64_t ItemsPerSlice(const Backend& backend, const ConvOperation& operation,
                      int threads) {
  const int64_t batch = std::max<int64_t>(operation.problem.batch, 1);
  const double slices = SecondsOf(backend, operation, threads) / kSliceSeconds;
  if (slices <= 1) return batch;
  const double most = std::max(1.0, static_cast<double>(batch) / slices);
  const auto items = static_cast<int64_t>(most);
  // Equal ones need one plan, and none is left over.
  const int64_t count = batch / items + (batch % items != 0);
  return batch / count + (batch % count != 0);
}

std::vector<ConvOperation> PlannedOperations(const Backend& backend,
                                             const ConvOperation& operation,
                                             int threads) {
  const int64_t items = ItemsPerSlice(backend, operation, threads);
  if (items >= operation.problem.batch) return {operation};
  const BatchSlices slices(operation, items);
  std::vector<ConvOperation> parts = {slices.SliceOperation(0)};
  if (operation.problem.batch % items != 0) {
    parts.push_back(slices.SliceOperation(slices.count() - 1));
  }
  return parts;
}

}  // namespace convgrad

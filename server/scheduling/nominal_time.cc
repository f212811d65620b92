#include "server/scheduling/nominal_time.h"

#include <algorithm>

namespace convgrad {
namespace {

constexpr double kSliceSeconds = 0.2;

// The time of an empty operation: synchronization of threads, lookups.
constexpr double kFixedSeconds = 50e-6;

// The cost of a byte in multiply-adds: 25e9 multiply-adds a second correspond
// to some 12 GB/s.
constexpr double kMacsPerByte = 2;

double SecondsOf(const Backend& backend, const Operation& operation,
                 int threads) {
  const double bytes = static_cast<double>(ItemBytes(operation)) *
                           static_cast<double>(operation.batch()) +
                       static_cast<double>(AddendBytes(operation));
  return (operation.nominal_macs() + bytes * kMacsPerByte) /
         backend.nominal_macs_per_second(threads);
}

}  // namespace

absl::Duration NominalTime(const Backend& backend, const Operation& operation,
                           int threads) {
  return absl::Seconds(kFixedSeconds + SecondsOf(backend, operation, threads));
}

int64_t ItemsPerSlice(const Backend& backend, const Operation& operation,
                      int threads) {
  const int64_t batch = std::max<int64_t>(operation.batch(), 1);
  const double slices = SecondsOf(backend, operation, threads) / kSliceSeconds;
  if (slices <= 1) return batch;
  const double most = std::max(1.0, static_cast<double>(batch) / slices);
  const auto items = static_cast<int64_t>(most);
  // Slices of equal size need only one plan.
  const int64_t count = batch / items + (batch % items != 0);
  return batch / count + (batch % count != 0);
}

std::vector<std::shared_ptr<const Operation>> PlannedOperations(
    const Backend& backend, const std::shared_ptr<const Operation>& operation,
    int threads) {
  const int64_t items = ItemsPerSlice(backend, *operation, threads);
  if (items >= operation->batch()) return {operation};
  const BatchSlices slices(operation, items);
  std::vector<std::shared_ptr<const Operation>> planned = {
      slices.SliceOperation(0)};
  if (operation->batch() % items != 0) {
    planned.push_back(slices.SliceOperation(slices.count() - 1));
  }
  return planned;
}

}  // namespace convgrad

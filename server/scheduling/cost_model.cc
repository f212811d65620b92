#include "server/scheduling/cost_model.h"

namespace convgrad {
namespace {

// An expectation weighs as much as a measurement of so many seconds.
constexpr double kExpectedSeconds = 0.01;
// What a measurement still counts after the next one.
constexpr double kFading = 0.95;

// Loopback TCP, of which gRPC's copies are the most; seen on two cores.
constexpr double kExpectedWireBytes = 1.5e9;
// Smaller messages measure the wait for them, not the wire.
constexpr int64_t kMeasurableBytes = int64_t{1} << 20;

int64_t CrossingBytes(const Operation& operation) {
  int64_t bytes = 0;
  for (const TensorUses& uses :
       {operation.OperandUses(), operation.ResultUses()}) {
    for (const TensorUse& use : uses) {
      if (use.tensor != nullptr) bytes += *ByteSize(*use.tensor);
    }
  }
  return bytes;
}

absl::Duration SecondsFor(double amount, double speed) {
  return speed > 0 ? absl::Seconds(amount / speed) : absl::ZeroDuration();
}

}  // namespace

Speed::Speed(double expected)
    : amount_(expected * kExpectedSeconds), seconds_(kExpectedSeconds) {}

void Speed::Add(double amount, absl::Duration elapsed) {
  if (elapsed <= absl::ZeroDuration()) return;
  amount_ = kFading * amount_ + amount;
  seconds_ = kFading * seconds_ + absl::ToDoubleSeconds(elapsed);
}

CostModel::Speeds::Speeds(const Rates& rates)
    : flops(rates.flops.begin(), rates.flops.end()),
      transfer(rates.transfer_bytes) {}

CostModel::CostModel(absl::Span<const Backend* const> backends,
                     int threads_per_worker)
    : wire_(kExpectedWireBytes) {
  MutexLock lock(&mutex_);
  for (const Backend* backend : backends) {
    const Rates rates = backend->rates(threads_per_worker);
    expected_.emplace(backend, rates);
    measured_.emplace(backend, Speeds(rates));
  }
}

Prediction CostModel::Predict(const Backend& backend,
                              const Operation& operation,
                              const Query& query) const {
  const Rates& expected = expected_.at(&backend);
  const auto dtype = static_cast<size_t>(operation.dtype());
  double flops = expected.flops[dtype];
  double transfer = expected.transfer_bytes;
  double wire = kExpectedWireBytes;
  if (!query.deterministic) {
    MutexLock lock(&mutex_);
    const Speeds& speeds = measured_.at(&backend);
    flops = speeds.flops[dtype].value();
    transfer = speeds.transfer.value();
    wire = wire_.value();
  }
  return {backend.name(),
          SecondsFor(static_cast<double>(query.wire_bytes), wire),
          SecondsFor(static_cast<double>(CrossingBytes(operation)), transfer),
          expected.overhead +
              SecondsFor(static_cast<double>(operation.flops()), flops)};
}

void CostModel::OnRun(const Backend& backend, const Operation& operation,
                      const RunTimes& times) {
  MutexLock lock(&mutex_);
  const auto found = measured_.find(&backend);
  if (found == measured_.end()) return;
  found->second.flops[static_cast<size_t>(operation.dtype())].Add(
      static_cast<double>(operation.flops()), times.reorder + times.compute);
  found->second.transfer.Add(static_cast<double>(times.transferred_bytes),
                             times.transfer);
}

void CostModel::OnReceived(int64_t bytes, absl::Duration elapsed) {
  if (bytes < kMeasurableBytes) return;
  MutexLock lock(&mutex_);
  wire_.Add(static_cast<double>(bytes), elapsed);
}

}  // namespace convgrad

#include "server/scheduling/work_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/scheduling/nominal_time.h"

namespace convgrad {
namespace {

// Weight of a new measurement in the moving average.
constexpr double kWeight = 0.25;

// The most that one measurement counts for, in averages, because a worker that
// was held up once says little about the next job.
constexpr double kMostAverages = 2;

// A rate is kept without a new measurement for kMemory or, if that is more, for
// kMemoryInJobs times as long as the last job took.
constexpr absl::Duration kMemory = absl::Seconds(10);
constexpr int kMemoryInJobs = 2;

}  // namespace

WorkRates::WorkRates(std::function<absl::Time()> clock)
    : clock_(std::move(clock)) {}

WorkRates::Work WorkRates::Predict(const Backend& backend,
                                   const Operation& operation,
                                   int threads) const {
  Work work;
  work.nominal = NominalTime(backend, operation, threads);
  const double decade = std::log10(absl::ToDoubleSeconds(work.nominal));
  work.kind = {&backend, operation.name(), operation.dtype(),
               static_cast<int>(std::floor(decade))};
  const absl::Time now = clock_();
  MutexLock lock(&mutex_);
  const auto rate = rates_.find(work.kind);
  if (rate != rates_.end() && rate->second.measurements >= 2 &&
      now <= rate->second.expires) {
    work.predicted = work.nominal * rate->second.measured_by_nominal;
  }
  return work;
}

void WorkRates::Learn(const Work& work, absl::Duration measured) {
  const double ratio = absl::FDivDuration(measured, work.nominal);
  const absl::Time now = clock_();
  MutexLock lock(&mutex_);
  Rate& rate = rates_[work.kind];
  if (now > rate.expires) rate = Rate();
  double& average = rate.measured_by_nominal;
  if (rate.measurements == 0) {
    average = ratio;
  } else if (rate.measurements == 1) {
    average = std::min(average, ratio);
  } else {
    average += kWeight * (std::min(ratio, kMostAverages * average) - average);
  }
  ++rate.measurements;
  rate.expires = now + std::max(kMemory, kMemoryInJobs * measured);
}

}  // namespace convgrad

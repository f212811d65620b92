// `SelfCheckSampler` picks the calls that the server checks although the client
// didn't ask for a self-check.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

namespace convgrad {

// `SelfCheckSampler` is thread-safe.
class SelfCheckSampler {
 public:
  // Range of `ratio`: 0 (none) to 1 (all).
  explicit SelfCheckSampler(double ratio) : ratio_(ratio) {}

  // Returns true for the fraction `ratio` of its calls, evenly spread.
  bool Pick() {
    const auto n = static_cast<double>(calls_.fetch_add(1));
    return std::floor((n + 1) * ratio_) > std::floor(n * ratio_);
  }

 private:
  const double ratio_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace convgrad

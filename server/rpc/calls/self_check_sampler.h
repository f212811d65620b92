// `SelfCheckSampler` picks the calls that the server checks without being
// asked.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

namespace convgrad {

// Thread-safe.
class SelfCheckSampler {
 public:
  // Range of `ratio`: 0 (none) to 1 (all).
  explicit SelfCheckSampler(double ratio) : ratio_(ratio) {}

  // Returns true for `ratio` of its calls, evenly spread.
  bool Pick() {
    const auto n = static_cast<double>(calls_.fetch_add(1));
    return std::floor((n + 1) * ratio_) > std::floor(n * ratio_);
  }

 private:
  const double ratio_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace convgrad

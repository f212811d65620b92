// How long a call would take on each backend: what "auto" decides by.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/core/backend.h"
#include "backends/core/mutex.h"

namespace convgrad {

// What a call is expected to take on one backend.
struct Prediction {
  absl::string_view backend;
  absl::Duration wire;      // operands and results of the message
  absl::Duration transfer;  // as RunTimes has it
  absl::Duration compute;

  absl::Duration total() const { return wire + transfer + compute; }
};

// A speed as measured, older measurements fading; long ones count for more.
// Owned by one thread.
class Speed {
 public:
  // Units: anything a second.
  explicit Speed(double expected);

  double value() const { return amount_ / seconds_; }
  void Add(double amount, absl::Duration elapsed);

 private:
  double amount_;
  double seconds_;
};

// Thread-safe.
class CostModel {
 public:
  struct Query {
    // False: by what was measured. True: by what backends say of themselves, so
    // that the choice, and with it the bits, is the same every time.
    bool deterministic = true;
    // Of operands and results in the call's messages.
    int64_t wire_bytes = 0;
  };

  // `backends` outlive the model.
  CostModel(absl::Span<const Backend* const> backends, int threads_per_worker);

  Prediction Predict(const Backend& backend, const Operation& operation,
                     const Query& query) const;

  // A run, and a request's bytes: they count from now on.
  void OnRun(const Backend& backend, const Operation& operation,
             const RunTimes& times);
  void OnReceived(int64_t bytes, absl::Duration elapsed);

 private:
  struct Speeds {
    explicit Speeds(const Rates& rates);

    std::vector<Speed> flops;  // by DataType
    Speed transfer;
  };

  std::map<const Backend*, Rates> expected_;
  mutable Mutex mutex_;
  std::map<const Backend*, Speeds> measured_ ABSL_GUARDED_BY(mutex_);
  Speed wire_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad

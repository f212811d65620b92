// `Subject` is the operation that compute_ratio measures repeatedly, on a
// server or on a backend in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "client/cpp/client.h"

namespace convgrad::bench {

// Times of one subject's runs.
struct Measured {
  std::vector<absl::Duration> total, reorder, compute;
  void Add(absl::Duration all, absl::Duration reorders, absl::Duration passes) {
    total.push_back(all);
    reorder.push_back(reorders);
    compute.push_back(passes);
  }
};

// Prints `status` and ends the program.
[[noreturn]] void Fail(const absl::Status& status);

// Not thread-safe.
class Subject {
 public:
  virtual ~Subject() = default;
  // Runs once. Adds the times to `measured` if it isn't null. Ends the program
  // on an error.
  virtual void Run(Measured* measured) = 0;
  virtual std::string implementation() const = 0;
};

// Returns a plan of `backend`, made with `options`. A run of it is timed as a
// whole.
std::unique_ptr<Subject> MakeBackendSubject(const Backend& backend,
                                            const ConvOperation& operation,
                                            const PlanOptions& options);

// Returns calls through `client`, which outlives it. The time is that between
// decode and encode in the report, without the queue.
std::unique_ptr<Subject> MakeServerSubject(Client* client,
                                           const ConvOperation& operation);

}  // namespace convgrad::bench

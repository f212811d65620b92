// `RunProgram` runs an operation on a program once, with its own guarded
// buffers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"

namespace convgrad {

// Bytes aligned to 64, surrounded by canaries.
class GuardedBytes {
 public:
  explicit GuardedBytes(int64_t bytes);
  std::byte* data() { return start_; }
  const std::byte* data() const { return start_; }
  int64_t size() const { return bytes_; }
  // Returns whether the canaries are unchanged.
  bool is_intact() const;

 private:
  int64_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* start_;
};

// The operands and results of a run, by position in RunBuffers.
struct GuardedRun {
  std::vector<std::vector<std::byte>> operands;
  std::vector<std::vector<std::byte>> results;

  std::vector<float> Floats(size_t result) const;
};

// Returns the operation of the program `text`, which replaces the request's
// program.
std::shared_ptr<const ProgramOperation> MakeProgramOperation(
    const std::string& text, ProgramRequest request);

// Returns random operands of the operation: reals of mean 0 (variances are
// positive), and class indices below `classes`. The same seed gives the same
// operands.
std::vector<std::vector<std::byte>> RandomOperands(
    const ProgramOperation& operation, int64_t classes, int seed = 1);

// Runs the plan, quantum by quantum if `in_quanta`, and expects that it writes
// only results and scratch. Both start as NaN.
GuardedRun RunPlan(const Plan& plan, const ProgramOperation& operation,
                   std::vector<std::vector<std::byte>> operands,
                   bool in_quanta);

// Returns the status of such a run.
absl::Status StatusOfRun(const Plan& plan, const ProgramOperation& operation,
                         const std::vector<std::vector<std::byte>>& operands);

// As RunPlan, with a plan of `backend` for two threads.
GuardedRun RunProgram(const Backend& backend, const ProgramOperation& operation,
                      std::vector<std::vector<std::byte>> operands);

// A forward with a tape, and its backward.
struct TapedRun {
  GuardedRun forward, backward;
};

// Runs both, from `gradient` of the outputs named. The backward finds other
// values in statistics that the forward has updated. Requires: two inputs.
TapedRun RunWithTape(const Backend& backend, const std::string& text,
                     ProgramRequest request,
                     std::vector<std::string> output_gradients,
                     std::vector<std::byte> gradient);

// Returns the largest difference. Requires: as many numbers in both.
double ErrorOf(const std::vector<float>& got,
               const std::vector<float>& expected);

}  // namespace convgrad

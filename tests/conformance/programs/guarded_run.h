// One run of an operation on a program, with buffers of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/core/backend.h"
#include "backends/core/program/program_operation.h"

namespace convgrad {

// Bytes aligned to 64, with canaries around them.
class GuardedBytes {
 public:
  explicit GuardedBytes(int64_t bytes);
  std::byte* data() { return start_; }
  const std::byte* data() const { return start_; }
  int64_t size() const { return bytes_; }
  // Whether the canaries are as they were.
  bool is_intact() const;

 private:
  int64_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* start_;
};

// What a run takes and gives, by position in RunBuffers.
struct ProgramRun {
  std::vector<std::vector<std::byte>> operands;
  std::vector<std::vector<std::byte>> results;

  std::vector<float> Floats(size_t result) const;
};

// Returns the operation. The text is the program's; the request's program is
// replaced by it.
std::shared_ptr<const ProgramOperation> MakeProgramOperation(
    const std::string& text, ProgramRequest request);

// Returns operands of the operation: reals of mean 0 (variances: positive),
// class indices below `classes`, the same for the same seed.
std::vector<std::vector<std::byte>> RandomOperands(
    const ProgramOperation& operation, int64_t classes, int seed = 1);

// Runs the plan, quantum by quantum if asked, and expects that nothing but
// results and scratch is written. Both begin as NaN.
ProgramRun RunPlan(const Plan& plan, const ProgramOperation& operation,
                   std::vector<std::vector<std::byte>> operands,
                   bool in_quanta);

// Returns how such a run ends.
absl::Status StatusOfRun(const Plan& plan, const ProgramOperation& operation,
                         const std::vector<std::vector<std::byte>>& operands);

// Likewise, by a plan of the backend's for two threads.
ProgramRun RunProgram(const Backend& backend, const ProgramOperation& operation,
                      std::vector<std::vector<std::byte>> operands);

}  // namespace convgrad

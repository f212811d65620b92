// An operand that is repeated along any axes of a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "backends/kernels/operators/combine.h"
#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Elements that lie side by side both in a repeated operand and in rows of all
// elements, so that kernels can read the operand without repeating it in
// memory.
struct RepeatedRuns {
  int64_t length = 0;             // of a run
  int64_t count = 0;              // of runs in the rows
  std::vector<StridedAxis> axes;  // number the runs in the operand
};

// Returns the runs of an operand of dims `from` in rows of dims `to`; nullopt
// if they are so short that repeating the operand in memory takes less time.
std::optional<RepeatedRuns> RunsOf(const Dims& from, const Dims& to);

// Calls piece(rows, operand, count) for pieces of all runs, on the run's team:
// the offsets of the first element in the rows and in the operand, and the
// number of elements.
void ForRuns(const RepeatedRuns& runs, const RunContext& context,
             absl::FunctionRef<void(int64_t, int64_t, int64_t)> piece);

// Writes y, the combination of rows a and of the repeated operand b. Requires:
// no numbers.
void CombineRuns(const RepeatedRuns& runs, Combination combination,
                 const Combined& tensors, DataType dtype,
                 const RunContext& context);

// Appends a step that repeats the value to the dims and the form of `like`.
// Returns the result.
BufferId AddRepeated(const std::string& value, const NetworkTensor& like,
                     NetworkBuilder* builder);

// Appends a step that sums the gradient of the repeated value to the value's
// gradient.
void AddSumsOfRepeated(const NetworkTensor& gradient, const std::string& value,
                       NetworkBuilder* builder);

}  // namespace convgrad::onednn

// `RunRecord` makes all runs of one record.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/cases/case_record.h"
#include "tests/cases/case_target.h"

namespace convgrad::testing_support {

// Receives the outcome of a run, whose name is e.g. "f32 NXC/OXI reals".
using TakeOutcome = std::function<void(const std::string& run, const Outcome&)>;

// Makes these runs in each of `dtypes`, by tier and in all directions:
//   published values in NCX, NXC and, 2-D and 3-D, channel blocks
//   S: integers in NCX (and, if small, channel blocks), reals in NXC, whole
//   M, L: integers in NCX and reals in NXC, sampled, and adjoint sums
// A record that breaks a rule of the server (an extent of 0) must be refused.
void RunRecord(const CaseTarget& target, const CaseRecord& record,
               const std::vector<DataType>& dtypes, const TakeOutcome& take);

// Returns the approximate bytes of all tensors of the record in f32.
double TensorBytes(const CaseRecord& record);

}  // namespace convgrad::testing_support

// All runs of one record.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/cases/case_record.h"
#include "tests/cases/case_target.h"

namespace convgrad::testing_support {

// Takes the outcome of a run, named e.g. "f32 NXC/OXI reals".
using TakeOutcome = std::function<void(const std::string& run, const Outcome&)>;

// Runs in each of `dtypes`, by tier and in all directions:
//   published values in NCX, NXC and, 2-D and 3-D, channel blocks
//   S: integers in NCX (and, if small, channel blocks), reals in NXC, whole
//   M, L: integers in NCX and reals in NXC, sampled, and adjoint sums
// A record that breaks our rules (an extent of 0) must be refused.
void RunRecord(const CaseTarget& target, const CaseRecord& record,
               const std::vector<DataType>& dtypes, const TakeOutcome& take);

// Returns about how many bytes the record's tensors take in f32, all together.
double TensorBytes(const CaseRecord& record);

}  // namespace convgrad::testing_support

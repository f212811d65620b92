// `CheckPublished` compares a target's results with published values.
#pragma once

#include "tests/cases/case_record.h"
#include "tests/cases/case_target.h"

namespace convgrad::testing_support {

// Returns whether the record has values for `dtype`: the dtypes in its
// bit_exact, and f32.
bool IsPublishedIn(const CaseRecord& record, DataType dtype);

// Runs the record's own numbers. The results must be equal bit for bit if the
// record's bit_exact contains the dtype, otherwise within |d| <= 1e-5 *
// max|expected| + 1e-6. `c0` is the size of channel blocks; 0: that of the
// dtype. Requires: record.validity.ok(), IsPublishedIn(record, dtype).
Outcome CheckPublished(const CaseTarget& target, const CaseRecord& record,
                       DataType dtype, const LayoutSet& layouts, int64_t c0);

}  // namespace convgrad::testing_support

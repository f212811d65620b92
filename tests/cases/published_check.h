// Published values, asked of a target.
#pragma once

#include "tests/cases/case_record.h"
#include "tests/cases/case_target.h"

namespace convgrad::testing_support {

// Returns whether the record has values for `dtype`: those that its bit_exact
// names, and f32.
bool IsPublishedIn(const CaseRecord& record, DataType dtype);

// Runs the record's own numbers. They must come out bit for bit if its
// bit_exact names the dtype, otherwise within
// |d| <= 1e-5 * max|expected| + 1e-6. `c0` is that of channel blocks, 0 for the
// dtype's own. Requires: record.validity.ok(), IsPublishedIn(record, dtype).
Outcome CheckPublished(const CaseTarget& target, const CaseRecord& record,
                       DataType dtype, const LayoutSet& layouts, int64_t c0);

}  // namespace convgrad::testing_support

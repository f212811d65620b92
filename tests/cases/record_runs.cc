#include "tests/cases/record_runs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/cases/oracle/problem_check.h"
#include "tests/cases/published_check.h"

namespace convgrad::testing_support {
namespace {

constexpr int kElements = 320;  // Of each result of an M-tier problem.
constexpr int kElementsL = 256;

// Channel blocks are used only for small tensors, because tests pack them
// element by element.
constexpr double kMostBytesInBlocks = 4e6;

bool HasChannelBlocks(const ConvProblem& problem) {
  return problem.axes.size() == 2 || problem.axes.size() == 3;
}

std::string Name(DataType dtype, const LayoutSet& layouts,
                 absl::string_view data) {
  return absl::StrCat(NameOf(dtype), " ", layouts.name, " ", data);
}

void RunPublished(const CaseTarget& target, const CaseRecord& record,
                  DataType dtype, const TakeOutcome& take) {
  const auto run = [&](const LayoutSet& layouts, int64_t c0) {
    take(Name(dtype, layouts, "published"),
         CheckPublished(target, record, dtype, layouts, c0));
  };
  run(RowMajorLayouts()[0], 0);
  run(RowMajorLayouts()[1], 0);
  if (!HasChannelBlocks(record.problem)) return;
  run(BlockedLayouts()[0], 0);
  if (dtype == DataType::kF32) run(BlockedLayouts()[0], 16);
}

void RunWhole(const CaseTarget& target, ProblemData* data, DataType dtype,
              bool blocks, const TakeOutcome& take) {
  const auto run = [&](const RunKind& kind, absl::string_view name) {
    take(Name(dtype, kind.layouts, name), CheckWhole(target, data, kind));
  };
  run({dtype, dtype, RowMajorLayouts()[0], Numbers::kIntegers}, "integers");
  if (blocks) {
    run({dtype, dtype, BlockedLayouts()[0], Numbers::kIntegers}, "integers");
  }
  // Results in f32 show errors in the sums of 16-bit operands best.
  run({dtype, DataType::kF32, RowMajorLayouts()[1], Numbers::kReals}, "reals");
}

void RunSampled(const CaseTarget& target, ProblemData* data, DataType dtype,
                int count, const TakeOutcome& take) {
  const auto run = [&](const RunKind& kind, absl::string_view name) {
    take(Name(dtype, kind.layouts, name),
         CheckSampled(target, data, kind, count));
  };
  run({dtype, DataType::kF32, RowMajorLayouts()[0], Numbers::kIntegers},
      "integers");
  run({dtype, dtype, RowMajorLayouts()[1], Numbers::kReals}, "reals");
}

// Returns whether a record that Validate refuses has an extent of 0.
bool HasZeroExtent(const ConvProblem& problem) {
  return problem.in_channels == 0 || problem.out_channels == 0 ||
         std::any_of(problem.axes.begin(), problem.axes.end(),
                     [](const SpatialAxis& axis) {
                       return axis.in == 0 || axis.kernel == 0 || axis.out == 0;
                     });
}

Outcome CheckRefusal(const CaseRecord& record) {
  if (absl::IsInvalidArgument(record.validity) &&
      HasZeroExtent(record.problem)) {
    return {};
  }
  return Failed(record.validity.ToString());
}

}  // namespace

double TensorBytes(const CaseRecord& record) {
  const ConvProblem& problem = record.problem;
  double in = problem.batch, out = problem.batch, weight = problem.out_channels;
  in *= problem.in_channels;
  out *= problem.out_channels;
  weight *= static_cast<double>(problem.in_channels) / problem.groups;
  for (const SpatialAxis& axis : problem.axes) {
    in *= axis.in;
    out *= axis.out;
    weight *= axis.kernel;
  }
  return 4 * (in + out + weight);
}

void RunRecord(const CaseTarget& target, const CaseRecord& record,
               const std::vector<DataType>& dtypes, const TakeOutcome& take) {
  if (!record.validity.ok()) {
    take("refusal of an extent of 0", CheckRefusal(record));
    return;
  }
  ProblemData data(record.problem);
  const bool blocks = HasChannelBlocks(record.problem) &&
                      TensorBytes(record) < kMostBytesInBlocks;
  for (DataType dtype : dtypes) {
    if (IsPublishedIn(record, dtype)) {
      RunPublished(target, record, dtype, take);
    }
    if (record.tier == 'S') {
      RunWhole(target, &data, dtype, blocks, take);
    } else {
      RunSampled(target, &data, dtype,
                 record.tier == 'M' ? kElements : kElementsL, take);
    }
  }
}

}  // namespace convgrad::testing_support

// Runs whose index is none: both backends refuse them before they read by it.
#include <limits>
#include <memory>
#include <utility>

#include "backends/onednn/onednn_backend.h"
#include "backends/reference/reference_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

std::shared_ptr<const ProgramOperation> Forward() {
  ProgramRequest request;
  TensorDescriptor x;
  x.dims = {2, 5, 3};
  request.inputs = {x};
  return MakeProgramOperation(
      "input x\nparameter i [4] i64 fixed\n"
      "y = index_select(x, i, axis=1)\noutput y\n",
      std::move(request));
}

void ExpectRefusal(const Backend& backend) {
  const auto operation = Forward();
  const auto plan = backend.MakePlan(*operation, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const int64_t index :
       {int64_t{-1}, int64_t{5}, std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    auto operands = RandomOperands(*operation, 5);
    auto* const indices = reinterpret_cast<int64_t*>(operands[1].data());
    for (int64_t i = 0; i < 4; ++i) indices[i] = i;
    EXPECT_TRUE(StatusOfRun(**plan, *operation, operands).ok());
    indices[2] = index;
    const absl::Status status = StatusOfRun(**plan, *operation, operands);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("i[2]: found "));
    EXPECT_THAT(status.message(),
                testing::HasSubstr("expected an index from 0 to 4"));
  }
}

TEST(IndexSelectTest, RefusesWhatIsNoIndex) {
  ExpectRefusal(**MakeReferenceBackend());
  ExpectRefusal(**MakeOnednnBackend());
}

}  // namespace
}  // namespace convgrad

// Tests attention whose mask hides all keys of some queries.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backends/onednn/onednn_backend.h"
#include "backends/reference/reference_backend.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

// The first three of five queries see no key: the mask is log(0) there.
constexpr char kHidden[] = R"(input x
input z
m = mul(z, other=0)
l = log(m)
p = pad(l, pads=[0, 0, 0, 2])
y = attention(x, x, x, p)
output y
)";
constexpr int64_t kColumns = 5 * 6;

TapedRun RunHidden(const Backend& backend, DataType dtype) {
  ProgramRequest request;
  request.compute_dtype = dtype;
  request.inputs.resize(2);
  request.inputs[0].dims = {2, 5, 6};
  request.inputs[1].dims = {1, 3, 5};
  request.input_gradients = {true, false};
  request.fetched = {"y"};
  const std::vector<float> ones(2 * kColumns, 1);
  std::vector<std::byte> gradient(ones.size() * sizeof(float));
  std::memcpy(gradient.data(), ones.data(), gradient.size());
  return RunWithTape(backend, kHidden, request, {"y"}, gradient);
}

TEST(Attention, QueriesWithoutKeysAreZero) {
  const auto onednn = *MakeOnednnBackend();
  const auto reference = *MakeReferenceBackend();
  for (const DataType dtype : {DataType::kF32, DataType::kBF16}) {
    const double bound = dtype == DataType::kF32 ? 1e-5 : 0.1;
    const TapedRun run = RunHidden(*onednn, dtype);
    const TapedRun expected = RunHidden(*reference, dtype);
    const std::vector<float> y = run.forward.Floats(0);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_NEAR(y[i], expected.forward.Floats(0)[i], bound);
      if (i % kColumns < 3 * 6) {
        EXPECT_EQ(y[i], 0);
      }
    }
    const std::vector<float> dx = run.backward.Floats(0);
    for (size_t i = 0; i < dx.size(); ++i) {
      EXPECT_NEAR(dx[i], expected.backward.Floats(0)[i], bound);
    }
  }
}

}  // namespace
}  // namespace convgrad

// Tests values that a forward reads from statistics that it updates.
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_backend.h"
#include "backends/reference/reference_backend.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

TensorDescriptor Values(Dims dims) {
  TensorDescriptor values;
  values.dims = std::move(dims);
  return values;
}

TEST(Statistics, ABackwardHasThoseThatTheForwardRead) {
  const auto onednn = *MakeOnednnBackend();
  constexpr char kDeclared[] =
      "input x\ninput z\nparameter m [12] fixed\nparameter v [12] fixed\n";
  constexpr char kRead[] = "r = read(m, shape=[3, 4])\n";
  constexpr char kUpdate[] =
      "b = batch_norm(x, none, none, m, v, training=true)\n";
  constexpr char kRest[] = "y = mul(z, r)\noutput y\noutput b\n";
  ProgramRequest request;
  request.inputs = {Values({5, 12}), Values({3, 4})};
  request.input_gradients = {false, true};
  request.fetched = {"r"};
  const std::vector<float> ones(12, 1);
  std::vector<std::byte> gradient(12 * sizeof(float));
  std::memcpy(gradient.data(), ones.data(), gradient.size());
  for (const std::string& text :
       {absl::StrCat(kDeclared, kRead, kUpdate, kRest),
        absl::StrCat(kDeclared, kUpdate, kRead, kRest)}) {
    const TapedRun run = RunWithTape(*onednn, text, request, {"y"}, gradient);
    EXPECT_EQ(run.backward.Floats(0), run.forward.Floats(0)) << text;
  }
}

// The result of the batch_norm isn't fetched. The fused ReLU gives NaN for
// -Inf.
TEST(Statistics, AReluOfMinusInfinityBeforeThemIsZero) {
  const std::string text =
      "input x\nparameter w [16, 16, 1, 1]\n"
      "parameter m [16] fixed\nparameter v [16] fixed\nparameter k [] i64 "
      "fixed\n"
      "a = conv(x, w)\nr = relu(a)\n"
      "b = batch_norm(r, none, none, m, v, k, training=true)\n"
      "y = relu(x)\noutput y\noutput b\n";
  ProgramRequest request;
  request.inputs = {Values({2, 16, 7, 7})};
  request.fetched = {"y"};
  const auto operation = MakeProgramOperation(text, request);
  std::vector<std::vector<std::byte>> operands = RandomOperands(*operation, 1);
  const float one = 1, infinite = -std::numeric_limits<float>::infinity();
  std::memcpy(operands[0].data(), &infinite, sizeof(float));
  for (size_t c = 0; c < 16; ++c) {
    std::memcpy(&operands[1][c * 16 * sizeof(float)], &one, sizeof(float));
  }
  const auto run = RunProgram(**MakeOnednnBackend(), *operation, operands);
  const auto expected =
      RunProgram(**MakeReferenceBackend(), *operation, operands);
  for (size_t result = 0; result < 3; ++result) {
    for (size_t i = 0; i < expected.Floats(result).size(); ++i) {
      EXPECT_NEAR(run.Floats(result)[i], expected.Floats(result)[i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace convgrad

// Tests values that a forward reads from statistics that it updates.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_backend.h"
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

}  // namespace
}  // namespace convgrad

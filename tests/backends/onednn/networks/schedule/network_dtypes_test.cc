// Tests in which dtypes the groups of a network compute.
#include "backends/onednn/networks/schedule/network_dtypes.h"

#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

constexpr char kDeclared[] =
    "input x\nparameter p [1, 4, 1, 1]\nparameter w [4, 4, 1, 1]\n"
    "parameter m [4] fixed\nparameter v [4] fixed\n";

// The steps use all that is declared. Returns the dtype of each group, by its
// result.
std::map<std::string, DataType> DtypesOf(const std::string& steps,
                                         DataType compute = DataType::kBF16,
                                         Fusion fusion = Fusion::kOfTraining) {
  const auto operation = OperationOf(kDeclared + steps, {{2, 4, 3, 3}},
                                     ProgramPart::kForward, compute);
  NetworkBuilder builder(*operation, {}, false);
  std::map<std::string, DataType> dtypes;
  for (const GroupSteps& group :
       FindGroups(operation->program(), operation->shapes(), fusion)) {
    const std::string& result = operation->program().steps[group.last()].result;
    builder.BeginForwardOf(result, dtypes[result] = DtypeOf(group, builder));
  }
  return dtypes;
}

constexpr char kScaled[] =
    "a = conv(x, w)\nb = read(p)\nc = mul(a, b)\nd = add(c, x)\n"
    "e = relu(d)\nf = conv(e, w)\ng = batch_norm(f, none, none, m, v)\n"
    "h = add(g, e)\ni = relu(h)\noutput i\n";

TEST(DtypeOf, IsF32FromAParameterToTheNextProduct) {
  auto dtypes = DtypesOf(kScaled);
  for (const char* result : {"b", "c", "e"}) {
    EXPECT_EQ(dtypes.at(result), DataType::kF32) << result;
  }
  // The batch_norm's x is bf16. It is fused with the add, and so decides.
  for (const char* result : {"a", "f", "i"}) {
    EXPECT_EQ(dtypes.at(result), DataType::kBF16) << result;
  }
}

TEST(DtypeOf, WithoutFusionEachStepDecides) {
  auto dtypes = DtypesOf(kScaled, DataType::kBF16, Fusion::kNone);
  EXPECT_EQ(dtypes.at("g"), DataType::kBF16);
  EXPECT_EQ(dtypes.at("h"), DataType::kF32);
}

TEST(DtypeOf, AConvolutionAndItsGroupRound) {
  auto dtypes = DtypesOf(
      "n = batch_norm(x, none, none, m, v)\nb = read(p)\nc = mul(n, b)\n"
      "d = conv(c, w)\ne = add(c, d)\noutput e\n",
      DataType::kBF16, Fusion::kOfInference);
  EXPECT_EQ(dtypes.size(), 4U);
  EXPECT_EQ(dtypes.at("c"), DataType::kF32);
  EXPECT_EQ(dtypes.at("e"), DataType::kBF16);
}

TEST(DtypeOf, SlopesAndExamplesOfAShapeDontCount) {
  auto dtypes = DtypesOf(
      "b = read(p)\nc = prelu(x, b)\nd = conv(c, w)\n"
      "e = batch_norm(d, none, none, m, v)\nf = mul(e, b)\n"
      "g = mean(e, dim=0, keepdim=true)\nh = expand(g, f, shape=[-1, 4, 3, "
      "3])\n"
      "output f\noutput h\n");
  EXPECT_EQ(dtypes.at("c"), DataType::kBF16);
  EXPECT_EQ(dtypes.at("f"), DataType::kF32);
  EXPECT_EQ(dtypes.at("h"), DataType::kBF16);
}

TEST(DtypeOf, IsAlwaysF32InF32) {
  for (const auto& [result, dtype] : DtypesOf(kScaled, DataType::kF32)) {
    EXPECT_EQ(dtype, DataType::kF32) << result;
  }
}

}  // namespace
}  // namespace convgrad::onednn

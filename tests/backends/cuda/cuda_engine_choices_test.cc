#include "backends/cuda/cuda_engine_choices.h"

#include "gtest/gtest.h"

namespace convgrad::cuda {
namespace {

GraphSpec Spec() {
  GraphSpec spec;
  spec.problem = *Parse("conv2d_n16_c64_o64_i56_k3_p1");
  spec.operands = DataType::kBF16;
  spec.result = DataType::kF32;
  return spec;
}

TEST(EngineChoices, KeysSayWhatEnginesDependOn) {
  GraphSpec spec = Spec();
  EXPECT_EQ(KeyOf(spec, "H200"),
            "forward conv2d_n16_c64_o64_i56x56_k3x3_p1x1 bf16>f32 nxc on H200");
  spec.bias = true;
  spec.pass = Pass::kBackwardWeight;
  spec.format = Format::kNCX;
  EXPECT_EQ(KeyOf(spec, "H200"),
            "backward_weight conv2d_n16_c64_o64_i56x56_k3x3_p1x1 bf16>f32 "
            "ncx+bias on "
            "H200");
}

TEST(EngineChoices, ComeBackFromTheirText) {
  EngineChoices choices;
  choices.Put("b", "eng2_k1=3");
  choices.Put("a", "eng1");
  choices.Put("b", "eng3_k1=3");
  EXPECT_EQ(choices.ToText(), "a = eng1\nb = eng3_k1=3\n");
  EngineChoices read;
  ASSERT_TRUE(read.AddText(choices.ToText()).ok());
  EXPECT_EQ(read.ToText(), choices.ToText());
  EXPECT_EQ(read.Find("a"), "eng1");
  EXPECT_EQ(read.Find("c"), std::nullopt);
}

TEST(EngineChoices, RefuseWhatIsNoChoice) {
  EngineChoices choices;
  for (const char* line : {"a", "a = ", "a = b = c"}) {
    EXPECT_EQ(choices.AddText(line).code(), absl::StatusCode::kInvalidArgument)
        << line;
  }
}

}  // namespace
}  // namespace convgrad::cuda

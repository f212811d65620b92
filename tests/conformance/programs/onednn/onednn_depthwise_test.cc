// Tests which implementations compute depthwise convolutions: none is one of
// the library's plain loops, which are a thousand times slower.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/onednn/library/onednn_cpu.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/network_plan.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

// Returns a training step with a depthwise convolution of these attributes.
std::shared_ptr<const ProgramOperation> StepOf(const std::string& weight,
                                               const std::string& attributes,
                                               DataType dtype) {
  ProgramRequest request;
  request.part = ProgramPart::kTrain;
  request.parameter_gradients = true;
  request.compute_dtype = dtype;
  TensorDescriptor x;
  x.dims = {2, 16, 12, 12};
  TensorDescriptor classes;
  classes.dtype = DataType::kI64;
  classes.dims = {2};
  request.inputs = {x, classes};
  return MakeProgramOperation(
      absl::StrCat("input x\ninput t index\nparameter v [16, 16, 1, 1]\n",
                   "parameter w [16, 1, ", weight, "]\n",
                   "a = conv(x, v)\nb = conv(a, w, groups=16, ", attributes,
                   ")\nc = mean(b, dim=[2, 3])\n",
                   "loss = cross_entropy(c, t)\noutput loss\n"),
      std::move(request));
}

void ExpectNoPlainLoop(const ProgramOperation& operation,
                       const onednn::NetworkOptions& options) {
  const auto plan = onednn::MakeNetworkPlan(operation, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  int gradients = 0;
  for (const onednn::Step& step : (*plan)->steps()) {
    gradients += step.kind == "conv backward data" ? 1 : 0;
    if (!step.primitive_desc) continue;
    EXPECT_FALSE(onednn::IsPlainLoop(step.primitive_desc))
        << step.kind << ": " << step.primitive_desc.impl_info_str();
  }
  EXPECT_EQ(gradients, 1);
}

TEST(OnednnDepthwise, HasNoPlainLoop) {
  const int64_t block = onednn::ChannelsPerBlock();
  for (const auto& [weight, attributes] :
       std::vector<std::pair<std::string, std::string>>{
           {"3, 3", "padding=1"},
           {"3, 3", "padding=1, stride=2"},
           {"3, 3", "padding=2, dilation=2"},
           {"5, 5", "padding=2"},
           {"5, 5", "padding=2, stride=2"},
           {"9, 9", "padding=4"}}) {
    SCOPED_TRACE(absl::StrCat(weight, ": ", attributes));
    ExpectNoPlainLoop(*StepOf(weight, attributes, DataType::kF32), {1, block});
    if (block < 16) continue;  // The library has no bf16 below AVX-512.
    for (const int64_t layout : {block, onednn::kChannelsLast}) {
      ExpectNoPlainLoop(*StepOf(weight, attributes, DataType::kBF16),
                        {1, layout, /*native_bf16=*/true});
    }
  }
}

}  // namespace
}  // namespace convgrad

// Compares whole networks on the CPU backend with the reference, and tests
// other properties of a plan.

#include <cmath>
#include <limits>

#include "backends/onednn/library/onednn_cpu.h"
#include "backends/onednn/networks/network_plan.h"
#include "backends/onednn/onednn_backend.h"
#include "backends/reference/reference_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

// A small residual network with the parts of ResNet: a stem that pools, a block
// that keeps its shape, and one that doesn't. Channels fill no block.
constexpr char kResidual[] = R"(input x
input target index
parameter stem.weight [20, 3, 3, 3]
parameter n1.weight [20]
parameter n1.bias [20]
parameter n1.mean [20] fixed
parameter n1.var [20] fixed
parameter n1.count [] i64 fixed
parameter c2.weight [20, 20, 3, 3]
parameter n2.weight [20]
parameter n2.bias [20]
parameter n2.mean [20] fixed
parameter n2.var [20] fixed
parameter c3.weight [24, 20, 3, 3]
parameter c3.bias [24]
parameter n3.mean [24] fixed
parameter n3.var [24] fixed
parameter n3.count [] i64 fixed
parameter c4.weight [24, 20, 1, 1]
parameter n4.weight [24]
parameter n4.bias [24]
parameter fc.weight [7, 24]
parameter fc.bias [7]
a1 = conv(x, stem.weight, padding=1)
b1 = batch_norm(a1, n1.weight, n1.bias, n1.mean, n1.var, n1.count, training=true)
r1 = relu(b1)
p1 = max_pool(r1, kernel_size=3, stride=2, padding=1)
a2 = conv(p1, c2.weight, padding=1)
b2 = batch_norm(a2, n2.weight, n2.bias, n2.mean, n2.var, training=true, momentum=0.3)
s2 = add(b2, p1)
r2 = relu(s2)
a3 = conv(r2, c3.weight, c3.bias, stride=2, padding=1)
b3 = batch_norm(a3, none, none, n3.mean, n3.var, n3.count, training=true, momentum=none)
a4 = conv(r2, c4.weight, stride=2)
b4 = batch_norm(a4, n4.weight, n4.bias, training=true)
s4 = add(b3, b4)
r4 = relu(s4)
g = adaptive_avg_pool(r4, output_size=1)
f = flatten(g)
logits = linear(f, fc.weight, fc.bias)
loss = cross_entropy(logits, target)
output loss
output logits
)";

// A network without blocks: odd channels, a convolution's bias, activations of
// all kinds, an add without batch_norm, a flatten of several positions, tied
// weights.
constexpr char kPlain[] = R"(input x
input target index
parameter c1.weight [10, 3, 3, 3]
parameter c1.bias [10]
parameter c2.weight [10, 10, 3, 3]
parameter m [10] fixed
parameter n.var [10] fixed
parameter fc.weight [5, 90]
a = conv(x, c1.weight, c1.bias, stride=2)
b = silu(a)
c = conv(b, c2.weight, padding=1)
d = leaky_relu(c, negative_slope=0.2)
e = conv(d, c2.weight, padding=1)
e1 = batch_norm(e, none, none, m, n.var)
h = add(e1, b)
i = sigmoid(h)
j = add(i, d)
k = relu(j)
l = relu6(k)
o = avg_pool(l, kernel_size=2, padding=1, ceil_mode=true)
q = flatten(o)
logits = linear(q, fc.weight)
loss = cross_entropy(logits, target, label_smoothing=0.1, reduction=sum)
output loss
output logits
)";

// A network with the parts of U-Net, squeeze-and-excite and DenseNet: groups,
// depthwise kernels, and fewer channels than a block.
constexpr char kBranches[] = R"(input x
input target
parameter c1.weight [20, 3, 3, 3]
parameter c2.weight [20, 1, 3, 3]
parameter c2.bias [20]
parameter c3.weight [32, 10, 3, 3]
parameter se.weight [20, 20, 1, 1]
parameter up.weight [32, 9, 2, 2]
parameter up.bias [9]
parameter last.weight [2, 29, 1, 1]
parameter last.bias [2]
n = normalize(x, mean=[0.5, 0.1, -0.2], std=[0.3, 2.0, 1.5])
a = conv(n, c1.weight, padding=same)
b = relu6(a)
c = conv(b, c2.weight, c2.bias, padding=1, groups=20)
g = adaptive_avg_pool(c, output_size=1)
h = conv(g, se.weight)
s = sigmoid(h)
d = mul(c, s)
e = add(d, s)
f = mul(e, b)
i = max_pool(f, kernel_size=2)
j = conv(i, c3.weight, padding=1, groups=2)
k = dropout(j, p=0.25, training=true)
l = dropout(k, p=0.5, training=true, by_row=true)
m = conv_transpose(l, up.weight, up.bias, stride=2)
o = upsample(m, size=[5, 5], mode=bilinear)
q = upsample(o, scale_factor=2, mode=nearest)
r = concat(q, f)
t = conv(r, last.weight, last.bias)
u = dropout(t, p=0.5)
loss = mse(u, target)
output loss
output u
)";

TensorDescriptor Images(Dims dims, Layout layout = Layout::kNCX) {
  TensorDescriptor tensor;
  tensor.layout = layout;
  tensor.dims = std::move(dims);
  return tensor;
}

TensorDescriptor Indices(int64_t count) {
  TensorDescriptor tensor;
  tensor.dtype = DataType::kI64;
  tensor.dims = {count};
  return tensor;
}

ProgramRequest RequestFor(ProgramPart part, int64_t extent = 11,
                          Layout layout = Layout::kNCX) {
  ProgramRequest request;
  request.part = part;
  request.inputs = {Images({3, 3, extent, extent}, layout), Indices(3)};
  if (part == ProgramPart::kTrain || part == ProgramPart::kBackward) {
    request.input_gradients = {true, false};
  }
  return request;
}

class NetworkPlans : public testing::Test {
 protected:
  // Expects that the results of two runs are equal within rounding, result by
  // result.
  static void ExpectNear(const ProgramOperation& operation,
                         const GuardedRun& found, const GuardedRun& expected) {
    ASSERT_EQ(found.results.size(), expected.results.size());
    for (size_t i = 0; i < found.results.size(); ++i) {
      if (operation.ResultUses()[i].tensor->dtype != DataType::kF32) {
        EXPECT_EQ(found.results[i], expected.results[i]) << "result " << i;
        continue;
      }
      const std::vector<float> a = found.Floats(i), b = expected.Floats(i);
      double error = 0, size = 0;
      for (size_t e = 0; e < a.size(); ++e) {
        error += std::pow(double{a[e]} - b[e], 2);
        size += std::pow(double{b[e]}, 2);
      }
      EXPECT_LE(std::sqrt(error), 2e-5 * std::sqrt(size) + 1e-6)
          << "result " << i << ", " << std::sqrt(size);
    }
  }

  void ExpectAsReference(const std::string& text,
                         const ProgramRequest& request) {
    const auto operation = MakeProgramOperation(text, request);
    const auto operands = RandomOperands(*operation, 5);
    ExpectNear(*operation, RunProgram(*onednn_, *operation, operands),
               RunProgram(*reference_, *operation, operands));
  }

  const std::unique_ptr<Backend> onednn_ = *MakeOnednnBackend();
  const std::unique_ptr<Backend> reference_ = *MakeReferenceBackend();
};

TEST_F(NetworkPlans, TrainAsTheReferenceDoes) {
  ExpectAsReference(kResidual, RequestFor(ProgramPart::kTrain));
  ExpectAsReference(kPlain, RequestFor(ProgramPart::kTrain));
}

TEST_F(NetworkPlans, TrainWithBranchesAsTheReferenceDoes) {
  ProgramRequest request;
  request.part = ProgramPart::kTrain;
  request.inputs = {Images({3, 3, 10, 10}), Images({3, 2, 10, 10})};
  request.input_gradients = {true, true};
  ExpectAsReference(kBranches, request);
  request.inputs[0].layout = Layout::kNXC;
  ExpectAsReference(kBranches, request);
  request.inputs[0].dtype = DataType::kU8;
  request.inputs[1].dtype = DataType::kF16;
  ExpectAsReference(kBranches, request);
  request.inputs[0].dtype = request.inputs[1].dtype = DataType::kU16;
  ExpectAsReference(kBranches, request);
  request.inputs[0].layout = Layout::kNCX;
  ExpectAsReference(kBranches, request);
}

TEST_F(NetworkPlans, RefuseAClassThatIsNone) {
  const auto operation =
      MakeProgramOperation(kResidual, RequestFor(ProgramPart::kForward));
  auto operands = RandomOperands(*operation, 5);
  StoreRounded(DataType::kI64, 7, operands[1].data() + sizeof(int64_t));
  const auto plan = onednn_->MakePlan(*operation, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::Status status = StatusOfRun(**plan, *operation, operands);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("target[1]: found 7"));
}

TEST_F(NetworkPlans, ReadImagesInChannelsLast) {
  ExpectAsReference(kResidual,
                    RequestFor(ProgramPart::kTrain, 11, Layout::kNXC));
}

TEST_F(NetworkPlans, RunForwardAsTheReferenceDoes) {
  ProgramRequest request = RequestFor(ProgramPart::kForward);
  request.fetched = {"logits", "r1", "a3", "p1", "loss", "b3"};
  ExpectAsReference(kResidual, request);
  request.fetched = {"logits", "b", "d"};
  ExpectAsReference(kPlain, request);
}

TEST_F(NetworkPlans, AForwardWithATapeAndItsBackwardGiveTheBitsOfATrain) {
  for (const char* text : {kResidual, kPlain}) {
    ProgramRequest request = RequestFor(ProgramPart::kTrain);
    const auto train = MakeProgramOperation(text, request);
    const GuardedRun whole =
        RunProgram(*onednn_, *train, RandomOperands(*train, 5));
    std::vector<std::byte> one(sizeof(float));
    StoreRounded(DataType::kF32, 1, one.data());
    const TapedRun taped = RunWithTape(*onednn_, text, request, {"loss"}, one);
    std::vector<std::vector<std::byte>> results = taped.forward.results;
    results.pop_back();
    results.insert(results.end(), taped.backward.results.begin(),
                   taped.backward.results.end());
    EXPECT_EQ(results, whole.results);
  }
}

TEST_F(NetworkPlans, BackwardFromAnOutputThatIsNoLoss) {
  ProgramRequest request = RequestFor(ProgramPart::kTrain);
  std::vector<std::byte> gradient(3 * 7 * sizeof(float));
  for (size_t i = 0; i < 21; ++i) {
    StoreRounded(DataType::kF32, 0.1 * static_cast<double>(i) - 1,
                 &gradient[i * sizeof(float)]);
  }
  const TapedRun taped =
      RunWithTape(*onednn_, kResidual, request, {"logits"}, gradient);
  // The first result is the input's gradient, the last one that of the last
  // linear's bias: the sum of the rows.
  const std::vector<float> bias =
      taped.backward.Floats(taped.backward.results.size() - 1);
  ASSERT_EQ(bias.size(), 7u);
  for (int i = 0; i < 7; ++i) {
    EXPECT_NEAR(bias[i], 3 * (0.1 * (7 + i) - 1), 1e-5);
  }
}

TEST_F(NetworkPlans, AGradientThatNothingReachesIsZero) {
  const std::string text =
      "input x\n"
      "parameter w [4, 3, 1, 1]\n"
      "parameter u [4, 3, 1, 1]\n"
      "a = conv(x, w)\n"
      "b = conv(x, u)\n"
      "output a\n"
      "output b\n";
  ProgramRequest request;
  request.inputs = {Images({2, 3, 4, 4})};
  request.part = ProgramPart::kBackward;
  request.output_gradients = {"a"};
  auto operation = MakeProgramOperation(text, request);
  request.tape_bytes = (*onednn_->MakePlan(*operation, {}))->tape_bytes();
  operation = MakeProgramOperation(text, request);
  const GuardedRun run =
      RunProgram(*onednn_, *operation, RandomOperands(*operation, 1));
  EXPECT_THAT(run.Floats(1), testing::Each(0.0f));
}

TEST_F(NetworkPlans, FetchingChangesNoBit) {
  ProgramRequest request = RequestFor(ProgramPart::kTrain);
  request.fetched = {"loss"};
  const auto plain = MakeProgramOperation(kResidual, request);
  request.fetched = {"loss", "a1", "p1", "r2", "a4", "g"};
  const auto fetching = MakeProgramOperation(kResidual, request);
  const auto operands = RandomOperands(*plain, 5);
  const GuardedRun a = RunProgram(*onednn_, *plain, operands);
  GuardedRun b = RunProgram(*onednn_, *fetching, operands);
  b.results.erase(b.results.begin() + 1, b.results.begin() + 6);
  EXPECT_EQ(a.results, b.results);
}

TEST_F(NetworkPlans, AValueWithinAGroupCannotBeFetched) {
  ProgramRequest request = RequestFor(ProgramPart::kForward);
  request.fetched = {"s2"};
  const auto operation = MakeProgramOperation(kResidual, request);
  const absl::Status status = onednn_->CheckSupport(*operation);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), testing::HasSubstr("s2"));
}

TEST_F(NetworkPlans, WithoutFusingEachValueCanBeFetched) {
  ProgramRequest request = RequestFor(ProgramPart::kTrain);
  request.fuse = false;
  request.fetched = {"loss", "b1", "r1", "s2", "b2", "r2", "b4", "s4"};
  ExpectAsReference(kResidual, request);
  request.part = ProgramPart::kForward;
  request.input_gradients = {};
  ExpectAsReference(kResidual, request);
}

TEST_F(NetworkPlans, QuantaGiveTheBitsOfARun) {
  const auto operation =
      MakeProgramOperation(kResidual, RequestFor(ProgramPart::kTrain));
  const auto operands = RandomOperands(*operation, 5);
  const GuardedRun whole = RunProgram(*onednn_, *operation, operands);
  const onednn::NetworkOptions options = {2, onednn::ChannelsPerBlock(), false,
                                          1e4};
  auto plan = onednn::MakeNetworkPlan(*operation, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT((*plan)->quanta(), 10);
  const GuardedRun cut =
      RunPlan(**plan, *operation, operands, /*in_quanta=*/true);
  EXPECT_EQ(cut.results, whole.results);
}

TEST_F(NetworkPlans, ADivergedRunIsNotHidden) {
  const auto operation =
      MakeProgramOperation(kResidual, RequestFor(ProgramPart::kTrain));
  auto operands = RandomOperands(*operation, 5);
  StoreRounded(DataType::kF32, std::numeric_limits<double>::quiet_NaN(),
               operands[0].data());
  const GuardedRun run = RunProgram(*onednn_, *operation, operands);
  EXPECT_TRUE(std::isnan(run.Floats(0)[0]));
}

TEST_F(NetworkPlans, ChannelsLastGivesTheSameWithinRounding) {
  const auto operation =
      MakeProgramOperation(kResidual, RequestFor(ProgramPart::kTrain));
  const auto operands = RandomOperands(*operation, 5);
  auto plan = onednn::MakeNetworkPlan(*operation, {2, onednn::kChannelsLast});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ExpectNear(*operation, RunPlan(**plan, *operation, operands, false),
             RunProgram(*reference_, *operation, operands));
}

}  // namespace
}  // namespace convgrad

#include "proto/codec/codec.h"

#include "tests/proto/random_operation.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

void ExpectEqual(const ConvOperation& got, const ConvOperation& expected) {
  EXPECT_EQ(got.direction, expected.direction);
  EXPECT_EQ(got.problem, expected.problem);
  EXPECT_EQ(got.operands, expected.operands);
  ASSERT_EQ(got.results.size(), expected.results.size());
  for (size_t i = 0; i < got.results.size(); ++i) {
    EXPECT_EQ(got.results[i].which, expected.results[i].which);
    EXPECT_EQ(got.results[i].descriptor, expected.results[i].descriptor);
    EXPECT_EQ(got.results[i].scale, expected.results[i].scale);
  }
}

class CodecTest : public ::testing::Test {
 protected:
  absl::StatusOr<DecodedOperation> Decode() const {
    return DecodeOperation(message_, operation_.direction,
                           PayloadBytes(operation_));
  }

  ConvOperation operation_ = SmallBackward();
  v1::ConvOperation message_ = EncodeOperation(operation_);
};

TEST(CodecRoundTripTest, DecodesWhatItEncodes) {
  RandomOperation random(1);
  for (int i = 0; i < 2000; ++i) {
    const ConvOperation operation = random.Next();
    SCOPED_TRACE(ToString(operation));
    const auto decoded =
        DecodeOperation(EncodeOperation(operation), operation.direction,
                        PayloadBytes(operation));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(decoded->support.ok()) << decoded->support;
    ExpectEqual(decoded->operation, operation);
    int payload = 0;
    for (int k = 0; k < kOperandCount; ++k) {
      EXPECT_EQ(decoded->sources[k].payload_index,
                operation.operands[k] ? payload++ : -1);
    }
  }
}

TEST(CodecRoundTripTest, DecodesTensorsAndOptions) {
  RandomOperation random(2);
  for (int i = 0; i < 200; ++i) {
    const ConvOperation operation = random.Next();
    const TensorDescriptor& result = operation.results[0].descriptor;
    const auto decoded = DecodeTensor(EncodeTensor(result, 0),
                                      operation.problem.groups, "results[0]");
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, result);
  }
  const CallOptions options{"cuda", false, std::string(16, 'x')};
  const auto decoded = DecodeOptions(EncodeOptions(options));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->backend, "cuda");
  EXPECT_FALSE(decoded->deterministic);
  EXPECT_EQ(decoded->request_id, options.request_id);
}

TEST(CodecOptionsTest, RefusesUnknownBackendsAndShortIds) {
  v1::Options options;
  EXPECT_EQ(DecodeOptions(options)->backend, "");
  EXPECT_TRUE(DecodeOptions(options)->deterministic);
  options.set_request_id("short");
  ExpectInvalid(DecodeOptions(options).status(), Reason::kOutOfRange,
                "options.request_id");
  options.set_backend(static_cast<v1::BackendChoice>(77));
  ExpectInvalid(DecodeOptions(options).status(), Reason::kInvalidEnum,
                "options.backend");
}

TEST_F(CodecTest, RefusesEnumsUnsetOrUnknownByTheirPath) {
  auto* operands = message_.mutable_operands();
  operands->mutable_weight()->set_dtype(v1::DATA_TYPE_UNSPECIFIED);
  ExpectInvalid(Decode().status(), Reason::kInvalidEnum,
                "operation.operands.weight.dtype");
  operands->mutable_input()->set_layout(v1::LAYOUT_UNSPECIFIED);
  ExpectInvalid(Decode().status(), Reason::kInvalidEnum,
                "operation.operands.input.layout");
  operands->mutable_input()->set_layout(static_cast<v1::Layout>(99));
  const absl::Status unknown = Decode().status();
  ExpectInvalid(unknown, Reason::kInvalidEnum,
                "operation.operands.input.layout");
  EXPECT_EQ(DetailOf(unknown)->found, "99");
}

TEST_F(CodecTest, RefusesUnknownNumbersInEveryEnumField) {
  const auto spoil = [this](auto set, const std::string& field) {
    v1::ConvOperation message = message_;
    set(&message);
    const auto decoded = DecodeOperation(message, operation_.direction,
                                         PayloadBytes(operation_));
    ExpectInvalid(decoded.status(), Reason::kInvalidEnum, field);
  };
  spoil([](auto* m) { m->mutable_problem()->set_padding(v1::Padding(9)); },
        "operation.problem.padding");
  spoil(
      [](auto* m) { m->mutable_problem()->set_activation(v1::Activation(-1)); },
      "operation.problem.activation");
  spoil([](auto* m) { m->mutable_results(1)->set_which(v1::Result(42)); },
        "operation.results[1].which");
  spoil([](auto* m) { m->mutable_results(1)->clear_which(); },
        "operation.results[1].which");
  spoil([](auto* m) { m->mutable_results(0)->set_dtype(v1::DataType(8)); },
        "operation.results[0].dtype");
  spoil([](auto* m) { m->mutable_results(0)->set_layout(v1::Layout(1 << 30)); },
        "operation.results[0].layout");
  spoil(
      [](auto* m) {
        m->mutable_results(0)->set_store(v1::ResultRequest::Store(3));
      },
      "operation.results[0].store");
  spoil(
      [](auto* m) {
        m->mutable_operands()->mutable_bias()->set_layout(v1::Layout(50));
      },
      "operation.operands.bias.layout");
  spoil(
      [](auto* m) {
        m->mutable_operands()->mutable_weight()->mutable_step_result();
      },
      "operation.operands.weight.step_result.result");
}

TEST_F(CodecTest, ReportsEnumsBeforeShapes) {
  message_.mutable_problem()->set_out_channels(-1);
  message_.mutable_results(1)->set_dtype(v1::DataType(50));
  ExpectInvalid(Decode().status(), Reason::kInvalidEnum,
                "operation.results[1].dtype");
}

TEST_F(CodecTest, ReportsShapesBeforeByteCounts) {
  message_.mutable_operands()->mutable_weight()->set_dims(0, 7);
  const auto decoded = DecodeOperation(message_, Direction::kBackward, {1});
  ExpectInvalid(decoded.status(), Reason::kShapeMismatch,
                "operation.operands.weight.dims");
}

TEST_F(CodecTest, FillsInResultDefaults) {
  for (auto* tensor : {message_.mutable_operands()->mutable_input(),
                       message_.mutable_operands()->mutable_weight(),
                       message_.mutable_operands()->mutable_grad_output()}) {
    tensor->set_dtype(v1::DATA_TYPE_BF16);
  }
  message_.mutable_operands()->mutable_grad_output()->set_layout(
      v1::LAYOUT_NXC);
  message_.mutable_operands()->mutable_weight()->set_layout(v1::LAYOUT_XIO);
  message_.clear_results();
  for (v1::Result which : {v1::RESULT_GRAD_INPUT, v1::RESULT_GRAD_WEIGHT,
                           v1::RESULT_GRAD_BIAS, v1::RESULT_GRAD_RESIDUAL}) {
    message_.add_results()->set_which(which);
  }
  std::vector<int64_t> bytes = PayloadBytes(operation_);
  for (int64_t& size : bytes) size /= 2;
  const auto decoded = DecodeOperation(message_, Direction::kBackward, bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& results = decoded->operation.results;
  EXPECT_EQ(ToString(results[0].descriptor), "bf16:NXC[2,4,5,5]");
  EXPECT_EQ(ToString(results[1].descriptor), "f32:XIO[6,4,3,3]");
  EXPECT_EQ(ToString(results[2].descriptor), "f32:NCX[6]");
  EXPECT_EQ(ToString(results[3].descriptor), "bf16:NXC[2,6,5,5]");
  EXPECT_EQ(results[0].scale, 1);
  EXPECT_EQ(decoded->operation.problem.bias, Dims{6});
}

TEST_F(CodecTest, DefaultsGradWeightToOixWithoutWeight) {
  message_.mutable_results(1)->clear_layout();
  message_.mutable_results()->DeleteSubrange(0, 1);
  message_.mutable_operands()->clear_weight();
  message_.mutable_operands()
      ->mutable_grad_output()
      ->mutable_inline_()
      ->set_payload_index(1);
  const auto decoded = DecodeOperation(message_, Direction::kBackward,
                                       {2 * 4 * 25 * 4, 2 * 6 * 25 * 4});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->operation.results[0].descriptor.layout, Layout::kOIX);
}

TEST_F(CodecTest, TakesC0FromTheOperandThatNamesIt) {
  auto* grad_output = message_.mutable_operands()->mutable_grad_output();
  grad_output->set_layout(v1::LAYOUT_NDC1HWC0);
  grad_output->set_c0(16);
  message_.mutable_results(0)->set_layout(v1::LAYOUT_NDC1HWC0);
  std::vector<int64_t> bytes = PayloadBytes(operation_);
  bytes[2] = 2 * 16 * 25 * 4;
  auto decoded = DecodeOperation(message_, Direction::kBackward, bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->operation.results[0].descriptor.c0, 16);

  grad_output->set_c0(0);
  bytes[2] = 2 * 8 * 25 * 4;
  decoded = DecodeOperation(message_, Direction::kBackward, bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->operation.results[0].descriptor.c0, 8);

  grad_output->set_c0(7);
  ExpectInvalid(Decode().status(), Reason::kOutOfRange,
                "operation.operands.grad_output.c0");
  grad_output->set_c0(8);
  message_.mutable_results(0)->set_c0(16);
  ExpectInvalid(Decode().status(), Reason::kLayoutMismatch,
                "operation.results[0].c0");
}

TEST_F(CodecTest, GivesFractalDescriptorsTheirGroups) {
  operation_.problem = *Parse("conv2d_n2_c4_o6_i5x5_k3_p1_g2");
  message_ = EncodeOperation(operation_);
  auto* weight = message_.mutable_operands()->mutable_weight();
  weight->set_dims(1, 2);
  weight->set_layout(v1::LAYOUT_FRACTAL_Z_3D);
  std::vector<int64_t> bytes = PayloadBytes(operation_);
  // Both groups fit in one block: 9 taps of 16 x 8.
  bytes[1] = 9 * 16 * 8 * 4;
  const auto decoded = DecodeOperation(message_, Direction::kBackward, bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->operation.operand(Operand::kWeight)->groups, 2);
  EXPECT_EQ(decoded->operation.operand(Operand::kInput)->groups, 1);
}

TEST_F(CodecTest, ReadsTheBiasFromOperandOrRequest) {
  auto* results = message_.mutable_results();
  results->at(0).mutable_bias_dims()->add_dim(6);
  ExpectInvalid(Decode().status(), Reason::kOutOfRange,
                "operation.results[0].bias_dims");
  results->at(0).set_which(v1::RESULT_GRAD_BIAS);
  ASSERT_TRUE(Decode().ok()) << Decode().status();
  EXPECT_EQ(Decode()->operation.problem.bias, Dims{6});
  results->at(0).mutable_bias_dims()->clear_dim();
  ASSERT_TRUE(Decode().ok()) << Decode().status();
  EXPECT_EQ(Decode()->operation.problem.bias, Dims{});
  results->at(0).mutable_bias_dims()->add_dim(5);
  ExpectInvalid(Decode().status(), Reason::kShapeMismatch,
                "operation.results[0].bias_dims");
}

TEST_F(CodecTest, ChecksTheBiasOperandOfABackwardThenIgnoresIt) {
  *message_.mutable_operands()->mutable_bias() =
      EncodeTensor({DataType::kF32, Layout::kNCX, {6}, 0, 1}, 3);
  message_.mutable_operands()->mutable_bias()->clear_layout();
  std::vector<int64_t> bytes = PayloadBytes(operation_);
  bytes.push_back(24);
  const auto decoded = DecodeOperation(message_, Direction::kBackward, bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_FALSE(decoded->operation.problem.bias.has_value());
  message_.mutable_operands()->mutable_bias()->set_dims(0, 4);
  ExpectInvalid(Decode().status(), Reason::kShapeMismatch,
                "operation.operands.bias.dims");
}

TEST_F(CodecTest, NamesMissingAndSuperfluousParts) {
  message_.mutable_operands()->clear_grad_output();
  ExpectInvalid(Decode().status(), Reason::kMissing,
                "operation.operands.grad_output");
  message_.clear_results();
  ExpectInvalid(Decode().status(), Reason::kMissing, "operation.results");
  message_.clear_problem();
  ExpectInvalid(Decode().status(), Reason::kMissing, "operation.problem");
}

TEST_F(CodecTest, RefusesAResultAskedForTwice) {
  message_.mutable_results(1)->set_which(v1::RESULT_GRAD_INPUT);
  ExpectInvalid(Decode().status(), Reason::kDuplicate,
                "operation.results[1].which");
}

TEST(DecodeTensorTest, RefusesDimsThatItsLayoutCannotHold) {
  v1::Tensor tensor = EncodeTensor(
      {DataType::kF32, Layout::kFractalZ3D, {6, 4, 3, 3}, 8, 1}, 0);
  EXPECT_TRUE(DecodeTensor(tensor, 2, "t").ok());
  ExpectInvalid(DecodeTensor(tensor, 0, "t").status(), Reason::kShapeMismatch,
                "t.dims");
  ExpectInvalid(DecodeTensor(tensor, 4, "t").status(), Reason::kShapeMismatch,
                "t.dims");
  tensor.set_dims(3, 0);
  ExpectInvalid(DecodeTensor(tensor, 2, "t").status(), Reason::kOutOfRange,
                "t.dims[3]");
  tensor.set_dims(3, int64_t{1} << 62);
  ExpectInvalid(DecodeTensor(tensor, 2, "t").status(), Reason::kOverflow,
                "t.dims");
}

}  // namespace
}  // namespace convgrad

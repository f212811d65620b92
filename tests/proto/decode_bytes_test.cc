// Where tensors' bytes are: payloads, regions, sessions, steps.
#include "proto/codec.h"
#include "tests/proto/random_operation.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

class DecodeBytesTest : public ::testing::Test {
 protected:
  absl::StatusOr<DecodedOperation> Decode() const {
    return DecodeOperation(message_, Direction::kBackward, bytes_);
  }
  void ExpectRefused(Reason reason, const std::string& field) const {
    ExpectInvalid(Decode().status(), reason, field);
  }
  void ExpectUnsupported(const std::string& field) const {
    const auto decoded = Decode();
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectError(decoded->support, absl::StatusCode::kUnimplemented,
                Reason::kUnsupported, field);
  }

  ConvOperation operation_ = SmallBackward();
  v1::ConvOperation message_ = EncodeOperation(operation_);
  v1::Operands* operands_ = message_.mutable_operands();
  std::vector<int64_t> bytes_ = PayloadBytes(operation_);
};

TEST_F(DecodeBytesTest, NamesBothByteCounts) {
  bytes_[1] = 100;
  ExpectRefused(Reason::kByteCountMismatch, "payloads[1]");
  const auto detail = DetailOf(Decode().status());
  EXPECT_EQ(detail->found, "100 bytes");
  EXPECT_EQ(detail->expected,
            "864 bytes for operation.operands.weight, f32:OIX[6,4,3,3]");
}

TEST_F(DecodeBytesTest, RefusesPayloadsOneByteOff) {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    for (int64_t off : {-1, 1}) {
      bytes_[i] += off;
      ExpectRefused(Reason::kByteCountMismatch,
                    "payloads[" + std::to_string(i) + "]");
      bytes_[i] -= off;
    }
  }
}

TEST_F(DecodeBytesTest, RefusesIndicesOutsideThePayloads) {
  auto* source = operands_->mutable_weight()->mutable_inline_();
  for (int index : {-1, 3, 2147483647, -2147483647 - 1}) {
    source->set_payload_index(index);
    ExpectRefused(Reason::kOutOfRange,
                  "operation.operands.weight.inline.payload_index");
  }
  bytes_.clear();
  EXPECT_EQ(Decode().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DecodeBytesTest, RefusesPayloadsThatNoTensorNames) {
  bytes_.push_back(0);
  ExpectRefused(Reason::kMalformed, "payloads[3]");
}

TEST_F(DecodeBytesTest, LetsTensorsShareAPayload) {
  operation_.problem = *Parse("conv2d_n2_c4_o4_i5x5_k3_p1");
  operation_.operand(Operand::kWeight)->dims = {4, 4, 3, 3};
  operation_.operand(Operand::kGradOutput)->dims = {2, 4, 5, 5};
  message_ = EncodeOperation(operation_);
  message_.mutable_operands()
      ->mutable_grad_output()
      ->mutable_inline_()
      ->set_payload_index(0);
  bytes_ = {2 * 4 * 25 * 4, 4 * 4 * 9 * 4};
  const auto decoded = Decode();
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->payload_index[static_cast<int>(Operand::kGradOutput)], 0);
}

TEST_F(DecodeBytesTest, RequiresASource) {
  operands_->mutable_input()->clear_source();
  ExpectRefused(Reason::kMissing, "operation.operands.input");
}

TEST_F(DecodeBytesTest, RefusesDimsBeyondFive) {
  for (int i = 0; i < 5000; ++i) operands_->mutable_input()->add_dims(1);
  ExpectRefused(Reason::kOutOfRange, "operation.operands.input.dims");
}

TEST_F(DecodeBytesTest, ChecksRegionsThenSaysThatTheyAreNotBuilt) {
  bytes_.pop_back();
  auto* region = operands_->mutable_grad_output()->mutable_region();
  ExpectRefused(Reason::kByteCountMismatch,
                "operation.operands.grad_output.region.byte_length");
  region->set_byte_length(2 * 6 * 25 * 4);
  ExpectUnsupported("operation.operands.grad_output.region");
  region->set_byte_offset(-1);
  ExpectRefused(Reason::kOutOfRange,
                "operation.operands.grad_output.region.byte_offset");
  region->set_byte_offset(9223372036854775807);
  ExpectRefused(Reason::kOverflow,
                "operation.operands.grad_output.region.byte_offset");
}

TEST_F(DecodeBytesTest, SaysThatOtherSourcesAreNotBuilt) {
  bytes_.pop_back();
  operands_->mutable_grad_output()->mutable_kept();
  ExpectUnsupported("operation.operands.grad_output.kept");
  operands_->mutable_grad_output()->mutable_step_result()->set_result(
      v1::RESULT_OUTPUT);
  ExpectUnsupported("operation.operands.grad_output.step_result");
}

TEST_F(DecodeBytesTest, SaysThatOtherDestinationsAndStoresAreNotBuilt) {
  auto* result = message_.mutable_results(1);
  result->set_store(v1::ResultRequest::STORE_ADD);
  ExpectUnsupported("operation.results[1].store");
  result->clear_store();
  result->mutable_kept();
  ExpectUnsupported("operation.results[1].kept");
  result->mutable_region()->set_byte_length(6 * 4 * 9 * 4);
  ExpectUnsupported("operation.results[1].region");
  result->mutable_region()->set_byte_length(1);
  ExpectRefused(Reason::kByteCountMismatch,
                "operation.results[1].region.byte_length");
}

}  // namespace
}  // namespace convgrad

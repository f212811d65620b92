// Tests the sources of tensors' bytes: payloads, regions, sessions, steps.
#include "proto/codec/codec.h"
#include "tests/proto/random_operation.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

const std::string kRegionId(kRegionIdBytes, 'r');
constexpr int64_t kGradOutputBytes = 2 * 6 * 25 * 4;
constexpr int64_t kWeightBytes = 6 * 4 * 9 * 4;

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
  EXPECT_EQ(decoded->sources[PositionOf(Operand::kGradOutput)].payload_index,
            0);
}

TEST_F(DecodeBytesTest, RequiresASource) {
  operands_->mutable_input()->clear_source();
  ExpectRefused(Reason::kMissing, "operation.operands.input");
}

TEST_F(DecodeBytesTest, RefusesDimsBeyondFive) {
  for (int i = 0; i < 5000; ++i) operands_->mutable_input()->add_dims(1);
  ExpectRefused(Reason::kOutOfRange, "operation.operands.input.dims");
}

TEST_F(DecodeBytesTest, ChecksRegionsOfOperands) {
  bytes_.pop_back();
  auto* region = operands_->mutable_grad_output()->mutable_region();
  for (size_t length : {0, 1, 15, 17}) {
    region->set_region_id(std::string(length, 'r'));
    ExpectRefused(Reason::kOutOfRange,
                  "operation.operands.grad_output.region.region_id");
  }
  region->set_region_id(kRegionId);
  ExpectRefused(Reason::kByteCountMismatch,
                "operation.operands.grad_output.region.byte_length");
  EXPECT_EQ(DetailOf(Decode().status())->expected, "1200 bytes");
  region->set_byte_length(kGradOutputBytes);
  region->set_byte_offset(5);
  const auto decoded = Decode();
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->support.ok());
  const TensorSource& source =
      decoded->sources[PositionOf(Operand::kGradOutput)];
  EXPECT_EQ(source.region, (RegionRange{kRegionId, 5, kGradOutputBytes}));
  EXPECT_EQ(source.payload_index, -1);
  region->set_byte_offset(-1);
  ExpectRefused(Reason::kOutOfRange,
                "operation.operands.grad_output.region.byte_offset");
  region->set_byte_offset(9223372036854775807);
  ExpectRefused(Reason::kOverflow,
                "operation.operands.grad_output.region.byte_offset");
}

TEST_F(DecodeBytesTest, SaysThatOtherSourcesAreNotBuilt) {
  bytes_.pop_back();
  operands_->mutable_grad_output()->mutable_step_result()->set_result(
      v1::RESULT_OUTPUT);
  ExpectUnsupported("operation.operands.grad_output.step_result");
}

TEST_F(DecodeBytesTest, SaysThatOtherDestinationsAndStoresAreNotBuilt) {
  auto* result = message_.mutable_results(1);
  result->set_store(v1::ResultRequest::STORE_ADD);
  ExpectUnsupported("operation.results[1].store");
}

TEST_F(DecodeBytesTest, TellsWhatIsKept) {
  bytes_.pop_back();
  auto* kept = operands_->mutable_grad_output()->mutable_kept();
  kept->set_tensor_id("g");
  kept->set_version(3);
  auto* result = message_.mutable_results(1);
  result->set_store(v1::ResultRequest::STORE_ADD);
  result->mutable_kept()->set_tensor_id("sum");
  const auto decoded = Decode();
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->support.ok());
  const TensorSource& source =
      decoded->sources[PositionOf(Operand::kGradOutput)];
  EXPECT_EQ(source.kept, (KeptName{"", "g", 3}));
  EXPECT_EQ(source.payload_index, -1);
  EXPECT_FALSE(decoded->kept_results[0].has_value());
  EXPECT_EQ(decoded->kept_results[1], (KeptResult{"sum", true}));
  message_.mutable_results(0)->mutable_kept()->set_tensor_id("sum");
  ExpectRefused(Reason::kDuplicate, "operation.results[1].kept.tensor_id");
}

TEST_F(DecodeBytesTest, SumsAreF32) {
  auto* result = message_.mutable_results(1);
  result->set_store(v1::ResultRequest::STORE_ADD);
  result->mutable_kept()->set_tensor_id("sum");
  for (auto* tensor : {operands_->mutable_input(), operands_->mutable_weight(),
                       operands_->mutable_grad_output()}) {
    tensor->set_dtype(v1::DATA_TYPE_BF16);
  }
  for (int64_t& bytes : bytes_) bytes /= 2;
  message_.mutable_results(0)->clear_dtype();
  result->set_dtype(v1::DATA_TYPE_BF16);
  ExpectRefused(Reason::kDtypeMismatch, "operation.results[1].dtype");
  result->clear_dtype();
  const auto decoded = Decode();
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->operation.results[1].descriptor.dtype, DataType::kF32);
}

TEST_F(DecodeBytesTest, ChecksRegionsOfResults) {
  auto* region = message_.mutable_results(1)->mutable_region();
  ExpectRefused(Reason::kOutOfRange, "operation.results[1].region.region_id");
  region->set_region_id(kRegionId);
  region->set_byte_length(1);
  ExpectRefused(Reason::kByteCountMismatch,
                "operation.results[1].region.byte_length");
  region->set_byte_length(kWeightBytes);
  const auto decoded = Decode();
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->support.ok());
  EXPECT_FALSE(decoded->result_regions[0].has_value());
  EXPECT_EQ(decoded->result_regions[1],
            (RegionRange{kRegionId, 0, kWeightBytes}));
}

TEST_F(DecodeBytesTest, RefusesResultsThatOverlapAnOperand) {
  bytes_.pop_back();
  auto* source = operands_->mutable_grad_output()->mutable_region();
  source->set_region_id(kRegionId);
  source->set_byte_offset(1000);
  source->set_byte_length(kGradOutputBytes);
  auto* result = message_.mutable_results(1)->mutable_region();
  result->set_region_id(kRegionId);
  result->set_byte_length(kWeightBytes);
  for (int64_t offset : {1000 - kWeightBytes + 1, int64_t{1000}, int64_t{1001},
                         1000 + kGradOutputBytes - 1}) {
    result->set_byte_offset(offset);
    ExpectRefused(Reason::kOutOfRange, "operation.results[1].region");
  }
  for (int64_t offset : {1000 - kWeightBytes, 1000 + kGradOutputBytes}) {
    result->set_byte_offset(offset);
    EXPECT_TRUE(Decode().ok()) << offset << Decode().status();
  }
  result->set_byte_offset(1000);
  result->set_region_id(std::string(kRegionIdBytes, 'q'));
  EXPECT_TRUE(Decode().ok()) << "another region";
}

TEST_F(DecodeBytesTest, RefusesResultsThatOverlapEachOther) {
  for (int i : {0, 1}) {
    auto* region = message_.mutable_results(i)->mutable_region();
    region->set_region_id(kRegionId);
    region->set_byte_length(*ByteSize(operation_.results[i].descriptor));
  }
  ExpectRefused(Reason::kOutOfRange, "operation.results[1].region");
}

TEST_F(DecodeBytesTest, LetsOperandsShareARegionsBytes) {
  for (v1::Tensor* tensor :
       {operands_->mutable_input(), operands_->mutable_grad_output()}) {
    auto* region = tensor->mutable_region();
    region->set_region_id(kRegionId);
    region->set_byte_length(tensor->dims(1) * 2 * 25 * 4);
  }
  operands_->mutable_weight()->mutable_inline_()->set_payload_index(0);
  bytes_ = {kWeightBytes};
  EXPECT_TRUE(Decode().ok()) << Decode().status();
}

TEST_F(DecodeBytesTest, EncodesWhatItDecodes) {
  RegionPlaces places;
  places.operands[static_cast<size_t>(Operand::kInput)] = {kRegionId, 64,
                                                           bytes_[0]};
  places.results.resize(operation_.results.size());
  places.results[0] = {kRegionId, 8192,
                       *ByteSize(operation_.results[0].descriptor)};
  message_ = EncodeOperation(operation_, places);
  bytes_.erase(bytes_.begin());
  const auto decoded = Decode();
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  for (size_t i = 0; i < places.operands.size(); ++i) {
    EXPECT_EQ(decoded->sources[i].region, places.operands[i]);
  }
  EXPECT_EQ(decoded->result_regions, places.results);
}

}  // namespace
}  // namespace convgrad

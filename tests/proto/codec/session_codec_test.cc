#include "proto/codec/session_codec.h"

#include <limits>
#include <utility>
#include <vector>

#include "proto/codec/codec.h"
#include "tests/proto/random_operation.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

v1::NamedPut PutOf(const std::string& name, int payload) {
  v1::NamedPut put;
  put.set_name(name);
  v1::Tensor* tensor = put.mutable_tensor();
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_layout(v1::LAYOUT_OIX);
  for (int64_t extent : {2, 3, 4}) tensor->add_dims(extent);
  tensor->mutable_inline_()->set_payload_index(payload);
  return put;
}

class DecodePutsTest : public ::testing::Test {
 protected:
  DecodePutsTest() { *request_.add_tensors() = PutOf("w", 0); }
  void ExpectRefused(Reason reason, const std::string& field) {
    ExpectInvalid(DecodePuts(request_, bytes_).status(), reason, field);
  }

  v1::PutTensorsRequest request_;
  std::vector<int64_t> bytes_ = {2 * 3 * 4 * 4};
};

TEST_F(DecodePutsTest, TakesBytesAndDigests) {
  request_.add_tensors()->set_digest(std::string(32, 'd'));
  const auto puts = DecodePuts(request_, bytes_);
  ASSERT_TRUE(puts.ok()) << puts.status();
  EXPECT_EQ((*puts)[0].source.payload_index, 0);
  EXPECT_EQ(ToString(*(*puts)[0].descriptor), "f32:OIX[2,3,4]");
  EXPECT_FALSE((*puts)[1].descriptor.has_value());
}

TEST_F(DecodePutsTest, NamesWhatIsWrong) {
  v1::NamedPut& put = *request_.mutable_tensors(0);
  bytes_ = {95};
  ExpectRefused(Reason::kByteCountMismatch, "payloads[0]");
  bytes_ = {96, 1};
  ExpectRefused(Reason::kMalformed, "payloads[1]");
  bytes_ = {96};
  put.mutable_tensor()->mutable_inline_()->set_payload_index(-1);
  ExpectRefused(Reason::kOutOfRange, "tensors[0].tensor.inline.payload_index");
  put.mutable_tensor()->clear_inline_();
  ExpectRefused(Reason::kMissing, "tensors[0].tensor");
  put.set_digest("short");
  ExpectRefused(Reason::kOutOfRange, "tensors[0].digest");
  put = PutOf("w", 0);
  put.set_groups(-1);
  ExpectRefused(Reason::kOutOfRange, "tensors[0].groups");
  put = PutOf("w", 0);
  put.mutable_tensor()->set_dims(0, -2);
  ExpectRefused(Reason::kOutOfRange, "tensors[0].tensor.dims[0]");
  for (int i = 0; i <= kMaxNamedTensors; ++i) {
    *request_.add_tensors() = PutOf("w", 0);
  }
  ExpectRefused(Reason::kOutOfRange, "tensors");
}

TEST_F(DecodePutsTest, CountsTwoBytesOfAnUnsignedInteger) {
  v1::Tensor& tensor = *request_.mutable_tensors(0)->mutable_tensor();
  tensor.set_dtype(v1::DATA_TYPE_U16);
  tensor.clear_dims();
  tensor.add_dims(1);
  for (const int64_t bytes : {0, 1, 3, 4}) {
    bytes_ = {bytes};
    ExpectRefused(Reason::kByteCountMismatch, "payloads[0]");
  }
  bytes_ = {2};
  const auto puts = DecodePuts(request_, bytes_);
  ASSERT_TRUE(puts.ok()) << puts.status();
  EXPECT_EQ((*puts)[0].descriptor->dtype, DataType::kU16);
}

TEST(DecodeWanted, GivesUnsignedIntegersAsTheyAre) {
  const TensorDescriptor kept{DataType::kU16, Layout::kNCX, {8, 3, 4}};
  v1::NamedGet get;
  get.set_first_item(3);
  const auto slice = DecodeWanted(get, kept, "t");
  EXPECT_EQ(slice->first_byte, 3 * 3 * 4 * 2);
  EXPECT_EQ(ToString(slice->descriptor), "u16:NCX[5,3,4]");
  get.set_dtype(v1::DATA_TYPE_BF16);
  EXPECT_FALSE(DecodeWanted(get, kept, "t").ok());
  get.Clear();
  get.set_layout(v1::LAYOUT_NXC);
  EXPECT_FALSE(DecodeWanted(get, kept, "t").ok());
}

TEST(DecodeWanted, BringsLayoutsAndSlices) {
  const TensorDescriptor kept{DataType::kF32, Layout::kOIX, {8, 3, 4}};
  v1::NamedGet get;
  EXPECT_EQ(DecodeWanted(get, kept, "t")->descriptor, kept);
  get.set_layout(v1::LAYOUT_XIO);
  get.set_dtype(v1::DATA_TYPE_BF16);
  EXPECT_EQ(ToString(DecodeWanted(get, kept, "t")->descriptor),
            "bf16:XIO[8,3,4]");
  get.set_first_item(2);
  get.set_items(5);
  const auto slice = DecodeWanted(get, kept, "t");
  EXPECT_EQ(ToString(slice->source), "f32:OIX[5,3,4]");
  EXPECT_EQ(slice->first_byte, 2 * 3 * 4 * 4);
  EXPECT_EQ(ToString(slice->descriptor), "bf16:XIO[5,3,4]");
  get.set_items(0);
  EXPECT_EQ(ToString(DecodeWanted(get, kept, "t")->source), "f32:OIX[6,3,4]");
}

TEST(DecodeWanted, NamesWhatIsWrong) {
  const TensorDescriptor kept{DataType::kF32, Layout::kOIX, {8, 3, 4}};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  v1::NamedGet get;
  for (const auto& [first, items] :
       std::vector<std::pair<int64_t, int64_t>>{{-1, 1},
                                                {0, 9},
                                                {9, 0},
                                                {8, 1},
                                                {1, -1},
                                                {kMost, 1},
                                                {1, kMost},
                                                {kLeast, 1},
                                                {1, kLeast}}) {
    get.set_first_item(first);
    get.set_items(items);
    ExpectInvalid(DecodeWanted(get, kept, "t").status(), Reason::kOutOfRange,
                  "t.items");
  }
  get.Clear();
  get.set_layout(v1::LAYOUT_NCX);
  ExpectInvalid(DecodeWanted(get, kept, "t").status(), Reason::kLayoutMismatch,
                "t.layout");
  get.Clear();
  get.set_items(1);
  const TensorDescriptor last_axis_first{
      DataType::kF32, Layout::kXIO, {8, 3, 4}};
  ExpectInvalid(DecodeWanted(get, last_axis_first, "t").status(),
                Reason::kLayoutMismatch, "t.items");
}

}  // namespace
}  // namespace convgrad

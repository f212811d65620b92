#include "proto/codec/network_codec.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/codec/codec.h"
#include "proto/codec/session_codec.h"
#include "tests/proto/status_matchers.h"

namespace convgrad {
namespace {

using Group = v1::UpdateParametersRequest::Group;

const TensorDescriptor kInput{DataType::kF32, Layout::kNCX, {2, 3, 4}};
constexpr int64_t kInputBytes = 4 * 2 * 3 * 4;

void AddInput(const std::string& name, int payload,
              v1::RunProgramRequest* request) {
  v1::NamedValue* value = request->add_inputs();
  value->set_name(name);
  *value->mutable_tensor() = EncodeTensor(kInput, payload);
}

class DecodeRunTest : public ::testing::Test {
 protected:
  DecodeRunTest() {
    request_.set_program("p");
    AddInput("x", 0, &request_);
    AddInput("y", 1, &request_);
  }
  void ExpectRefused(Reason reason, const std::string& field) {
    ExpectInvalid(DecodeRun(request_, bytes_).status(), reason, field);
  }
  v1::Tensor& tensor(int i) {
    return *request_.mutable_inputs(i)->mutable_tensor();
  }

  v1::RunProgramRequest request_;
  std::vector<int64_t> bytes_ = {kInputBytes, kInputBytes};
};

TEST_F(DecodeRunTest, TakesEverythingOver) {
  request_.set_compute_dtype(v1::DATA_TYPE_BF16);
  request_.mutable_backward()->add_input_gradients("x");
  request_.mutable_update()->set_algorithm(
      v1::UpdateParametersRequest::ALGORITHM_ADAM);
  const auto run = DecodeRun(request_, bytes_);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->inputs.size(), 2U);
  EXPECT_EQ(run->inputs[1].name, "y");
  EXPECT_EQ(run->inputs[1].descriptor, kInput);
  EXPECT_EQ(run->inputs[1].source.payload_index, 1);
  EXPECT_EQ(run->compute_dtype, DataType::kBF16);
  EXPECT_EQ(run->update->optimizer, Optimizer::kAdam);
}

TEST_F(DecodeRunTest, LeavesOpenWhatIsUnset) {
  const auto run = DecodeRun(request_, bytes_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->compute_dtype, DataType::kF32);
  EXPECT_FALSE(run->update.has_value());
}

TEST_F(DecodeRunTest, TakesTensorsFromAnywhere) {
  tensor(0).mutable_kept()->set_tensor_id("k");
  tensor(0).mutable_kept()->set_version(2);
  auto* region = tensor(1).mutable_region();
  region->set_region_id(std::string(16, 'r'));
  region->set_byte_offset(64);
  region->set_byte_length(kInputBytes);
  bytes_.clear();
  const auto run = DecodeRun(request_, bytes_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->inputs[0].descriptor, std::nullopt);
  EXPECT_EQ(run->inputs[0].source.kept, (KeptName{"", "k", 2}));
  EXPECT_EQ(run->inputs[1].source.region,
            (RegionRange{std::string(16, 'r'), 64, kInputBytes}));
  EXPECT_EQ(run->inputs[1].source.payload_index, -1);
}

TEST_F(DecodeRunTest, SeveralInputsMayShareAPayload) {
  tensor(1).mutable_inline_()->set_payload_index(0);
  ExpectRefused(Reason::kMalformed, "payloads[1]");
  bytes_.pop_back();
  EXPECT_TRUE(DecodeRun(request_, bytes_).ok());
}

TEST_F(DecodeRunTest, RefusesTensorsThatItCantPlace) {
  bytes_[1] += 1;
  ExpectRefused(Reason::kByteCountMismatch, "payloads[1]");
  bytes_[1] -= 1;
  for (int index : {-1, 2, std::numeric_limits<int>::max()}) {
    tensor(1).mutable_inline_()->set_payload_index(index);
    ExpectRefused(Reason::kOutOfRange, "inputs[1].tensor.inline.payload_index");
  }
  tensor(1).clear_source();
  ExpectRefused(Reason::kMissing, "inputs[1].tensor");
  tensor(1).mutable_stream();
  EXPECT_TRUE(absl::IsUnimplemented(DecodeRun(request_, bytes_).status()));
  tensor(1).mutable_region()->set_region_id("short");
  ExpectRefused(Reason::kOutOfRange, "inputs[1].tensor.region.region_id");
  tensor(1).mutable_region()->set_region_id(std::string(16, 'r'));
  ExpectRefused(Reason::kByteCountMismatch,
                "inputs[1].tensor.region.byte_length");
}

TEST_F(DecodeRunTest, RefusesTensorsThatArentTensors) {
  tensor(1).set_dims(0, -2);
  EXPECT_FALSE(DecodeRun(request_, bytes_).ok());
  tensor(1).set_dims(0, int64_t{1} << 62);
  EXPECT_FALSE(DecodeRun(request_, bytes_).ok());
  tensor(1).set_dims(0, 2);
  tensor(1).set_dtype(static_cast<v1::DataType>(99));
  ExpectRefused(Reason::kInvalidEnum, "inputs[1].tensor.dtype");
}

TEST_F(DecodeRunTest, RefusesANameTwice) {
  request_.mutable_inputs(1)->set_name("x");
  ExpectRefused(Reason::kDuplicate, "inputs[1].name");
}

TEST_F(DecodeRunTest, RefusesMoreTensorsThanARequestHas) {
  for (int i = 0; i < kMaxNamedTensors; ++i) {
    AddInput(absl::StrCat("n", i), 0, &request_);
  }
  ExpectRefused(Reason::kOutOfRange, "inputs");
}

TEST_F(DecodeRunTest, RefusesPartsThatDontGoTogether) {
  request_.set_tape("t");
  request_.mutable_backward();
  ExpectRefused(Reason::kUnsupported, "tape");
  request_.clear_tape();
  request_.mutable_update()->set_algorithm(
      v1::UpdateParametersRequest::ALGORITHM_SGD);
  EXPECT_TRUE(DecodeRun(request_, bytes_).ok());
  request_.mutable_backward()->set_leave_parameters(true);
  ExpectRefused(Reason::kMissing, "backward");
  request_.clear_backward();
  ExpectRefused(Reason::kMissing, "backward");
}

TEST_F(DecodeRunTest, ComputesInFloatsItHas) {
  for (int dtype : {static_cast<int>(v1::DATA_TYPE_F16),
                    static_cast<int>(v1::DATA_TYPE_I64), 99, -1}) {
    request_.set_compute_dtype(static_cast<v1::DataType>(dtype));
    const absl::Status status = DecodeRun(request_, bytes_).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_EQ(DetailOf(status)->field, "compute_dtype");
  }
}

TEST_F(DecodeRunTest, NamesFieldsOfItsUpdate) {
  request_.mutable_backward();
  request_.mutable_update()->set_algorithm(
      v1::UpdateParametersRequest::ALGORITHM_SGD);
  request_.mutable_update()->add_groups()->set_learning_rate(-1);
  ExpectRefused(Reason::kOutOfRange, "update.groups[0].learning_rate");
}

// The decoder refuses a critical unknown field before it checks other fields,
// in every message.
TEST_F(DecodeRunTest, UnknownFieldsOfPartsAreFound) {
  const google::protobuf::Message* parts[] = {&request_, &tensor(0)};
  for (const auto* part : parts) {
    auto* message = const_cast<google::protobuf::Message*>(part);
    auto* unknown = message->GetReflection()->MutableUnknownFields(message);
    unknown->AddVarint(77, 1);
    EXPECT_TRUE(absl::IsUnimplemented(CheckCriticalFields(request_)));
    unknown->Clear();
  }
}

TEST(DecodeTensors, NamesTheField) {
  v1::BackwardProgramRequest request;
  v1::NamedValue* value = request.add_output_gradients();
  value->set_name("y");
  *value->mutable_tensor() = EncodeTensor(kInput, 0);
  const auto decode = [&] {
    return DecodeTensors(request.output_gradients(), "output_gradients",
                         {kInputBytes});
  };
  const auto gradients = decode();
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(gradients->at(0).name, "y");
  value->mutable_tensor()->clear_dtype();
  ExpectInvalid(decode().status(), Reason::kInvalidEnum,
                "output_gradients[0].tensor.dtype");
}

class DecodeUpdateTest : public ::testing::Test {
 protected:
  DecodeUpdateTest() {
    request_.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_SGD);
    group_->add_parameters("w");
  }
  void ExpectRefused(Reason reason, const std::string& field) {
    ExpectInvalid(DecodeUpdate(request_, "").status(), reason, field);
  }

  v1::UpdateParametersRequest request_;
  Group* const group_ = request_.add_groups();
};

TEST_F(DecodeUpdateTest, TakesEverythingOver) {
  request_.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_ADAMW);
  request_.set_gradient_scale(0.5);
  request_.set_clip_norm(2);
  request_.set_clip_value(3);
  request_.set_skip_nonfinite(true);
  request_.set_keep_gradients(true);
  request_.set_ema_decay(0.75);
  request_.add_averaged("mean");
  group_->set_learning_rate(0.1);
  group_->set_beta1(0.5);
  group_->set_maximize(true);
  const auto update = DecodeUpdate(request_, "");
  ASSERT_TRUE(update.ok()) << update.status();
  EXPECT_EQ(update->optimizer, Optimizer::kAdamW);
  EXPECT_EQ(update->settings.gradient_scale, 0.5);
  EXPECT_EQ(update->settings.clip_norm, 2);
  EXPECT_EQ(update->settings.skip_nonfinite, 1);
  EXPECT_EQ(update->settings.clip_value, 3);
  EXPECT_TRUE(update->keep_gradients);
  EXPECT_TRUE(update->is_averaged);
  EXPECT_EQ(update->settings.ema_decay, 0.75);
  EXPECT_EQ(update->averaged, std::vector<std::string>{"mean"});
  ASSERT_EQ(update->groups.size(), 1U);
  EXPECT_EQ(update->groups[0].parameters, std::vector<std::string>{"w"});
  EXPECT_EQ(update->groups[0].settings.learning_rate, 0.1);
  EXPECT_EQ(update->groups[0].settings.beta1, 0.5);
  EXPECT_EQ(update->groups[0].settings.beta2, 0.999);
  EXPECT_EQ(update->groups[0].settings.maximize, 1);
}

TEST_F(DecodeUpdateTest, RefusesUnknownAlgorithms) {
  for (int algorithm : {0, 6, -1, 99}) {
    request_.set_algorithm(
        static_cast<v1::UpdateParametersRequest::Algorithm>(algorithm));
    ExpectRefused(Reason::kInvalidEnum, "algorithm");
  }
}

TEST_F(DecodeUpdateTest, RefusesAveragesThatCannotBe) {
  request_.add_averaged("mean");
  ExpectRefused(Reason::kMissing, "ema_decay");
  for (double decay : {-0.1, 1.1, std::nan("")}) {
    request_.set_ema_decay(decay);
    ExpectRefused(Reason::kOutOfRange, "ema_decay");
  }
  request_.set_ema_decay(0.5);
  for (const char* name : {"mean", "w"}) {  // `w` is a parameter.
    request_.add_averaged(name);
    ExpectRefused(Reason::kDuplicate, "averaged");
    request_.mutable_averaged()->RemoveLast();
  }
}

TEST_F(DecodeUpdateTest, RefusesNumbersOutOfRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::string, void (Group::*)(double)>> fields = {
      {"learning_rate", &Group::set_learning_rate},
      {"weight_decay", &Group::set_weight_decay},
      {"momentum", &Group::set_momentum},
      {"dampening", &Group::set_dampening},
      {"beta1", &Group::set_beta1},
      {"beta2", &Group::set_beta2},
      {"epsilon", &Group::set_epsilon},
      {"alpha", &Group::set_alpha}};
  for (const auto& [field, set] : fields) {
    for (double number : {std::nan(""), infinity, -infinity}) {
      std::invoke(set, group_, number);  // GCC's UBSan dislikes (group_->*set)
      ExpectRefused(Reason::kOutOfRange, absl::StrCat("groups[0].", field));
    }
    std::invoke(set, group_, 0);
  }
  group_->set_beta1(1);
  ExpectRefused(Reason::kOutOfRange, "groups[0].beta1");
  group_->clear_beta1();
  request_.set_clip_norm(-1);
  ExpectRefused(Reason::kOutOfRange, "clip_norm");
  request_.clear_clip_norm();
  request_.set_gradient_scale(std::nan(""));
  ExpectRefused(Reason::kOutOfRange, "gradient_scale");
}

TEST_F(DecodeUpdateTest, NesterovNeedsAMomentum) {
  group_->set_nesterov(true);
  ExpectRefused(Reason::kOutOfRange, "groups[0].nesterov");
  group_->set_momentum(0.9);
  EXPECT_TRUE(DecodeUpdate(request_, "").ok());
  group_->set_dampening(0.1);
  ExpectRefused(Reason::kOutOfRange, "groups[0].nesterov");
}

TEST_F(DecodeUpdateTest, RefusesAParameterTwice) {
  group_->add_parameters("w");
  ExpectRefused(Reason::kDuplicate, "groups[0].parameters");
  group_->mutable_parameters()->RemoveLast();
  request_.add_groups()->add_parameters("w");
  ExpectRefused(Reason::kDuplicate, "groups[1].parameters");
}

}  // namespace
}  // namespace convgrad

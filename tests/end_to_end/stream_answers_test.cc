// Tests that streams give the results of one message, over a real socket.
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/random_operation.h"
#include "tests/end_to_end/peers/streamed_operation.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

using testing_support::BlockedLayouts;
using testing_support::LayoutSet;
using testing_support::MakeOperation;
using testing_support::OperationSpec;
using testing_support::RowMajorLayouts;

constexpr int64_t kSliceItems[] = {1, 2, 3, 7, 0};

const std::vector<Result> kAllGradients = {
    Result::kGradInput, Result::kGradWeight, Result::kGradBias};

// Returns `bytes` with +0 for -0. Both are equal (proto/correctness.md), and a
// negative scale gives one or the other where nothing is summed.
std::string PositiveZeros(const ResultRequest& request, std::string bytes) {
  const auto width = static_cast<size_t>(ByteSizeOf(request.descriptor.dtype));
  std::string zero(width, '\0');
  zero.back() = '\x80';
  for (size_t at = 0; at < bytes.size(); at += width) {
    if (bytes.compare(at, width, zero) == 0) bytes[at + width - 1] = '\0';
  }
  return bytes;
}

class StreamAnswersTest : public testing::Test {
 protected:
  OperationReply Whole(const OperationData& data) {
    absl::StatusOr<OperationReply> reply = client_->Run(data.Call());
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *std::move(reply) : OperationReply();
  }
  OperationReply Streamed(const OperationData& data, int64_t slice_items) {
    absl::StatusOr<OperationReply> reply =
        client_->RunStreamed(data.Call(), slice_items);
    EXPECT_TRUE(reply.ok()) << ToString(data.operation()) << " in slices of "
                            << slice_items << ": " << reply.status();
    return reply.ok() ? *std::move(reply) : OperationReply();
  }

  // The data are integers, so sums are exact in any order.
  void ExpectSameAsWhole(const OperationSpec& spec) {
    const OperationData data(MakeOperation(spec), Values::kIntegers);
    const OperationReply whole = Whole(data);
    for (int64_t items : kSliceItems) {
      const OperationReply streamed = Streamed(data, items);
      ASSERT_EQ(streamed.results.size(), spec.results.size());
      for (Result which : spec.results) {
        EXPECT_EQ(BytesOf(streamed, which), BytesOf(whole, which))
            << NameOf(which) << " of " << ToString(data.operation())
            << " in slices of " << items;
      }
    }
  }

  TestServer server_;
  const std::unique_ptr<Client> client_ = *Client::Connect({server_.address()});
};

TEST_F(StreamAnswersTest, SameBitsAsOneMessageInEachDtypeAndLayout) {
  std::vector<LayoutSet> layouts(RowMajorLayouts().begin(),
                                 RowMajorLayouts().end());
  layouts.insert(layouts.end(), BlockedLayouts().begin(),
                 BlockedLayouts().end());
  for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (const LayoutSet& set : layouts) {
      ExpectSameAsWhole(
          {.problem = *Parse("conv2d_n5_c6_o4_g2_i5x4_k3_p1_relu"),
           .results = kAllGradients,
           .dtype = dtype,
           .result_dtype = dtype,
           .layouts = set});
    }
  }
  server_.ExpectNothingHeld();
}

TEST_F(StreamAnswersTest, SameBitsForEachSubsetOfGradients) {
  const Result gradients[] = {Result::kGradInput, Result::kGradWeight,
                              Result::kGradBias, Result::kGradResidual};
  for (unsigned set = 1; set < 16; ++set) {
    OperationSpec spec{.problem = *Parse("conv2d_n4_c3_o2_i4_k2_relu"),
                       .results = {}};
    for (unsigned i = 0; i < 4; ++i) {
      if (set >> i & 1) spec.results.push_back(gradients[i]);
    }
    ExpectSameAsWhole(spec);
  }
}

TEST_F(StreamAnswersTest, SameBitsForEachShapeOfBias) {
  for (absl::string_view bias :
       {"b", "b1", "b5x1x1x1", "b1x4x1x1", "b5x4x1x3", "b1x1x3x3"}) {
    const ConvProblem problem =
        *Parse(absl::StrCat("conv2d_n5_c2_o4_i5_k3_", bias, "_relu"));
    ExpectSameAsWhole({.problem = problem, .results = kAllGradients});
    ExpectSameAsWhole({.problem = problem, .results = {Result::kOutput}});
  }
}

TEST_F(StreamAnswersTest, SameBitsForEachKindOfProblem) {
  for (absl::string_view text :
       {"linear_n5_c3_o4_b", "conv1d_n4_c2_o3_i9_k3_s2_d2_b",
        "conv3d_n3_c2_o2_i4_k2_b", "convtranspose2d_n5_c4_o6_g2_i4_k3_s2_op1_b",
        "conv2d_n1_c2_o2_i4_k3_b", "conv2d_n5_c2_o3_i5_k3_p1_b_res_relu"}) {
    for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
      OperationSpec spec{
          .problem = *Parse(text), .results = kAllGradients, .dtype = dtype};
      ExpectSameAsWhole(spec);
      spec.results = {Result::kOutput};
      ExpectSameAsWhole(spec);
    }
  }
}

TEST_F(StreamAnswersTest, ScalesOnceWhateverTheSlices) {
  // The scale isn't a power of two, so a second rounding would change a bit.
  ExpectSameAsWhole({.problem = *Parse("conv2d_n5_c2_o3_i5_k3_p1"),
                     .results = kAllGradients,
                     .result_dtype = DataType::kF32,
                     .scale = 0.3f});
  ExpectSameAsWhole({.problem = *Parse("conv2d_n5_c2_o3_i5_k3_p1"),
                     .results = kAllGradients,
                     .dtype = DataType::kF16,
                     .result_dtype = DataType::kF16,
                     .scale = 0.3f});
}

TEST_F(StreamAnswersTest, SameBitsForOperationsThatNobodyThoughtOf) {
  std::mt19937 random(5);
  for (int i = 0; i < 150; ++i) {
    const OperationData data(testing_support::RandomOperation(200'000, &random),
                             Values::kIntegers);
    const OperationReply whole = Whole(data);
    const OperationReply streamed = Streamed(data, 1 + i % 4);
    for (const ResultRequest& request : data.operation().results) {
      EXPECT_EQ(PositiveZeros(request, BytesOf(streamed, request.which)),
                PositiveZeros(request, BytesOf(whole, request.which)))
          << NameOf(request.which) << " of " << ToString(data.operation())
          << " in slices of " << 1 + i % 4;
    }
  }
}

TEST_F(StreamAnswersTest, AnEmptyBatchGivesZeros) {
  OperationSpec spec{.problem = *Parse("conv2d_n0_c2_o3_i5_k3"),
                     .results = kAllGradients};
  ExpectSameAsWhole(spec);
  spec.results = {Result::kOutput};
  ExpectSameAsWhole(spec);
  server_.ExpectNothingHeld();
}

TEST_F(StreamAnswersTest, RealDataStaysWithinBoundsAndRepeatsBitForBit) {
  const OperationData data(
      MakeOperation({.problem = *Parse("conv2d_n9_c5_o6_i8_k3_p1"),
                     .results = kAllGradients}),
      Values::kReals);
  const OperationReply first = Streamed(data, 2);
  const OperationReply second = Streamed(data, 2);
  for (const ResultRequest& request : data.operation().results) {
    const std::string bytes = BytesOf(first, request.which);
    EXPECT_EQ(bytes, BytesOf(second, request.which));
    EXPECT_TRUE(testing_support::IsWithinBound(
        {&data.operation(), &request, bytes.data()},
        testing_support::ExpectZeroMean(data.operation(), request.which,
                                        data.values()),
        testing_support::DataKind::kZeroMean));
  }
}

TEST_F(StreamAnswersTest, TensorsOfManyFramesCome) {
  // grad_weight has 6 MiB, and the input 11 MiB a slice: frames of 4 MiB, and
  // remainders.
  const OperationData data(
      MakeOperation({.problem = *Parse("conv2d_n4_c1200_o1300_i28x28_k1"),
                     .results = {Result::kGradWeight}}),
      Values::kIntegers);
  Config config = TestConfig();
  config.memory_budget_bytes = int64_t{512} << 20;
  TestServer roomy(config);
  const auto client = *Client::Connect({roomy.address()});
  const auto streamed = client->RunStreamed(data.Call(), 3);
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  const auto whole = client->Run(data.Call());
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(BytesOf(*streamed, Result::kGradWeight),
            BytesOf(*whole, Result::kGradWeight));
}

TEST_F(StreamAnswersTest, ReportsTheWholeOperationOnce) {
  const ConvProblem problem = *Parse("conv2d_n4_c2_o3_i5_k3");
  const OperationData data(
      MakeOperation({.problem = problem, .results = kAllGradients}),
      Values::kIntegers);
  const OperationReply reply = Streamed(data, 2);
  EXPECT_EQ(reply.report.backend(), "onednn");
  EXPECT_EQ(reply.report.problem(), ToString(data.operation().problem));
  EXPECT_EQ(reply.report.flops(), data.operation().flops());
  EXPECT_GT(reply.report.seconds().total(), 0);
  constexpr char kLabels[] =
      "{backend=\"onednn\",code=\"OK\",dtype=\"f32\",op=\"backward\"} ";
  // Input has 800 bytes and grad_output 432. grad_weight needs no weight, and
  // grad_input needs its 216 bytes.
  server_.AwaitMetric(absl::StrCat("convgrad_requests_total", kLabels, 1));
  server_.AwaitMetric(
      absl::StrCat("convgrad_received_bytes_total", kLabels, 800 + 432 + 216));
  server_.AwaitMetric(
      absl::StrCat("convgrad_copied_bytes_total", kLabels, 800 + 432 + 216));
  server_.AwaitMetric(
      absl::StrCat("convgrad_sent_bytes_total", kLabels, 800 + 216 + 12));
  server_.AwaitMetric(
      "grpc_server_handled_total{grpc_code=\"OK\","
      "grpc_method=\"ConvBackwardStream\","
      "grpc_service=\"convgrad.v1.ConvGrad\",grpc_type=\"bidi_stream\"} 1");
}

TEST_F(StreamAnswersTest, CountsNonfiniteResultsOverSlicesAndInTheSum) {
  OperationData data(MakeOperation({.problem = *Parse("linear_n4_c2_o2"),
                                    .results = kAllGradients,
                                    .dtype = DataType::kF16,
                                    .result_dtype = DataType::kF16}),
                     Values::kIntegers);
  OperationCall call = data.Call();
  call.count_nonfinite = true;
  // The sum is 4 * 30000 and more. Each addend fits f16, the sum doesn't.
  std::vector<uint16_t> ones(8, 0x7753);
  call.operands[static_cast<size_t>(Operand::kGradOutput)] =
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(ones.data()), 16);
  for (int64_t items : {1, 3, 4}) {
    const auto reply = client_->RunStreamed(call, items);
    ASSERT_TRUE(reply.ok()) << reply.status();
    const auto whole = client_->Run(call);
    ASSERT_TRUE(whole.ok()) << whole.status();
    ASSERT_EQ(reply->report.statistics_size(), 3);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(reply->report.statistics(i).nonfinite_count(),
                whole->report.statistics(i).nonfinite_count())
          << i << " in slices of " << items;
    }
    EXPECT_EQ(reply->report.statistics(2).nonfinite_count(), 2);
  }
}

TEST_F(StreamAnswersTest, RunStreamsWhatTheServersMessagesCantHold) {
  Config config = TestConfig();
  config.max_message_bytes = 1000;
  TestServer narrow(config);
  const auto client = *Client::Connect({narrow.address()});
  const OperationData data(
      MakeOperation({.problem = *Parse("conv2d_n8_c2_o3_i9_k3"),
                     .results = kAllGradients}),
      Values::kIntegers);
  const auto reply = client->Run(data.Call());
  ASSERT_TRUE(reply.ok()) << reply.status();
  const OperationReply expected = Whole(data);
  for (Result which : kAllGradients) {
    EXPECT_EQ(BytesOf(*reply, which), BytesOf(expected, which));
  }
}

}  // namespace
}  // namespace convgrad

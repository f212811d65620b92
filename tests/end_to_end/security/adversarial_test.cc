// Sends every line of adversarial.jsonl, a list of invalid and edge problems,
// to a server, and compares the answers with the line's `expect`. The list is
// in the folder that CONVGRAD_CASES names.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

using Json = nlohmann::json;
using Numbers = std::vector<int64_t>;

// Larger requests are only declared, not sent.
constexpr int64_t kLargestSent = int64_t{64} << 20;

std::vector<Json> ReadCases() {
  const char* folder = std::getenv("CONVGRAD_CASES");
  const std::string path =
      absl::StrCat(folder != nullptr ? folder : CONVGRAD_CASES_DEFAULT,
                   "/adversarial.jsonl");
  std::ifstream file(path);
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) cases.push_back(Json::parse(line));
  }
  // If a folder is named, it must have cases.
  EXPECT_TRUE(folder == nullptr || !cases.empty()) << "no cases in " << path;
  if (cases.empty()) {
    std::cerr << "\n*** NO ADVERSARIAL CASES WERE SENT: there is no " << path
              << ", and CONVGRAD_CASES names no other folder ***\n\n";
  }
  return cases;
}

// A line, decoded for the server.
struct Case {
  explicit Case(const Json& json)
      : transposed(json["transposed"]),
        batch(json["n"]),
        in_channels(json["ic"]),
        out_channels(json["oc"]),
        groups(json["groups"]),
        in(json["in"].get<Numbers>()),
        kernel(json["k"].get<Numbers>()),
        stride(json["stride"].get<Numbers>()),
        dilation(json["dilation"].get<Numbers>()),
        pad_begin(json["pad_begin"].get<Numbers>()),
        pad_end(json["pad_end"].get<Numbers>()),
        output_padding(json.value("output_padding", Numbers())),
        same(json.value("pad_mode", "") == "SAME"),
        bias(json.value("bias_len", out_channels)),
        expect(json["expect"]) {
    const int64_t divisor = std::max<int64_t>(groups, 1);
    input_dims = Concat({batch, in_channels}, in);
    weight_dims =
        transposed ? Concat({in_channels, out_channels / divisor}, kernel)
                   : Concat({out_channels, json.value("weight_ic_per_group",
                                                      in_channels / divisor)},
                            kernel);
    output_dims = Concat({batch, out_channels}, ExpectedOut());
  }

  static Numbers Concat(Numbers first, const Numbers& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  bool expects_ok() const { return absl::StartsWith(expect, "OK"); }
  bool is_huge() const { return absl::StartsWith(expect, "plan/validate"); }

  // Returns the output extents that `expect` names; otherwise ones.
  Numbers ExpectedOut() const {
    const size_t start = expect.find("out=[");
    if (start == std::string::npos) return Numbers(in.size(), 1);
    const std::string list = expect.substr(start + 4);
    return Json::parse(list.substr(0, list.find(']') + 1)).get<Numbers>();
  }

  bool transposed;
  int64_t batch, in_channels, out_channels, groups;
  Numbers in, kernel, stride, dilation, pad_begin, pad_end, output_padding;
  bool same;
  int64_t bias;
  std::string expect;
  Numbers input_dims, weight_dims, output_dims;
};

// Returns the f32 bytes of a tensor of `dims`; nullopt if the size isn't valid.
std::optional<int64_t> SizeOf(const Numbers& dims) {
  std::optional<int64_t> count = CheckedProduct(dims);
  if (count && *count >= 0) return CheckedMul(*count, 4);
  return std::nullopt;
}

// Returns small integers, for which every backend gives the same bits.
std::string Values(const Numbers& dims) {
  std::vector<float> values(SizeOf(dims).value_or(0) / 4);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(i * 7 % 9) - 4);
  }
  return BytesOf(values);
}

template <typename List>
void Assign(const Numbers& from, List* to) {
  to->Assign(from.begin(), from.end());
}

class Sender {
 public:
  // Fills the problem of `operation`.
  static void SetProblem(const Case& c, bool named_padding,
                         v1::ConvOperation* operation) {
    v1::ConvProblem* problem = operation->mutable_problem();
    Assign(c.input_dims, problem->mutable_input_dims());
    problem->set_out_channels(c.out_channels);
    Assign(c.kernel, problem->mutable_kernel());
    Assign(c.stride, problem->mutable_stride());
    Assign(c.dilation, problem->mutable_dilation());
    Assign(c.output_padding, problem->mutable_output_padding());
    problem->set_groups(c.groups);
    problem->set_transposed(c.transposed);
    if (named_padding) {
      problem->set_padding(v1::PADDING_SAME_UPPER);
    } else {
      Assign(c.pad_begin, problem->mutable_pad_begin());
      Assign(c.pad_end, problem->mutable_pad_end());
    }
  }

  // Adds a tensor and its bytes.
  template <typename Request>
  void Add(const Numbers& dims, v1::Layout layout, Request* request,
           v1::Tensor* tensor) {
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_layout(layout);
    Assign(dims, tensor->mutable_dims());
    tensor->mutable_inline_()->set_payload_index(request->payloads_size());
    request->add_payloads(Values(dims));
  }

  v1::ConvForwardRequest Forward(const Case& c, bool named_padding) {
    v1::ConvForwardRequest request;
    v1::ConvOperation* operation = request.mutable_operation();
    SetProblem(c, named_padding, operation);
    v1::Operands* operands = operation->mutable_operands();
    Add(c.input_dims, v1::LAYOUT_NCX, &request, operands->mutable_input());
    Add(c.weight_dims, v1::LAYOUT_OIX, &request, operands->mutable_weight());
    Add({c.bias}, v1::LAYOUT_NCX, &request, operands->mutable_bias());
    operation->add_results()->set_which(v1::RESULT_OUTPUT);
    return request;
  }

  v1::ConvBackwardRequest Backward(const Case& c, bool named_padding) {
    v1::ConvBackwardRequest request;
    v1::ConvOperation* operation = request.mutable_operation();
    SetProblem(c, named_padding, operation);
    v1::Operands* operands = operation->mutable_operands();
    Add(c.input_dims, v1::LAYOUT_NCX, &request, operands->mutable_input());
    Add(c.weight_dims, v1::LAYOUT_OIX, &request, operands->mutable_weight());
    Add(c.output_dims, v1::LAYOUT_NCX, &request,
        operands->mutable_grad_output());
    operation->add_results()->set_which(v1::RESULT_GRAD_INPUT);
    operation->add_results()->set_which(v1::RESULT_GRAD_WEIGHT);
    v1::ResultRequest* bias = operation->add_results();
    bias->set_which(v1::RESULT_GRAD_BIAS);
    bias->mutable_bias_dims()->add_dim(c.bias);
    return request;
  }
};

class AdversarialTest : public testing::Test {
 protected:
  static Config LargeConfig() {
    Config config = TestConfig();
    config.memory_budget_bytes = int64_t{512} << 20;
    return config;
  }

  // Sends `request`. Compares the status with the line, and an answer with the
  // reference backend.
  template <typename Response, typename Request>
  void Check(const Case& c, const std::string& method, Request request) {
    const RawReply reply =
        CallRaw(server_.channel(), method, request.SerializeAsString());
    ++answers_[reply.status.error_code()];
    if (!c.expects_ok()) {
      EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
          << reply.status.error_message();
      EXPECT_NE(reply.trailers.field, "");
      EXPECT_NE(reply.trailers.expected, "");
      return;
    }
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    request.mutable_options()->set_backend(v1::BACKEND_CHOICE_REFERENCE);
    const RawReply oracle =
        CallRaw(server_.channel(), method, request.SerializeAsString());
    Response got;
    Response expected;
    ASSERT_TRUE(got.ParseFromString(reply.response));
    ASSERT_TRUE(expected.ParseFromString(oracle.response));
    ASSERT_EQ(got.payloads_size(), request.operation().results_size());
    for (int i = 0; i < got.payloads_size(); ++i) {
      EXPECT_EQ(FloatsOf(got.payloads(i)), FloatsOf(expected.payloads(i)));
    }
  }

  void SendSmall(const Case& c) {
    for (bool named_padding : {false, true}) {
      if (named_padding && !c.same) continue;
      Check<v1::ConvForwardResponse>(c, "ConvForward",
                                     sender_.Forward(c, named_padding));
      if (c.bias != c.out_channels && !c.expects_ok()) continue;
      Check<v1::ConvBackwardResponse>(c, "ConvBackward",
                                      sender_.Backward(c, named_padding));
    }
  }

  // Declares the request without sending it.
  void SendHuge(const Case& c) {
    int64_t declared = 0;
    for (const Numbers& dims : {c.input_dims, c.weight_dims, c.output_dims}) {
      declared += SizeOf(dims).value_or(0);
    }
    ASSERT_GT(declared, kLargestSent);
    const RawReply reply =
        CallRaw(server_.channel(), "ConvBackward", "",
                {{"convgrad-request-bytes", absl::StrCat(declared)}});
    ++answers_[reply.status.error_code()];
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(reply.trailers.reason, "LIMIT_EXCEEDED");
    EXPECT_EQ(reply.trailers.pushback_ms, "");
    // The problem itself must be valid; only the tensor is missing.
    v1::ConvBackwardRequest request;
    Sender::SetProblem(c, false, request.mutable_operation());
    request.mutable_operation()->add_results()->set_which(v1::RESULT_GRAD_BIAS);
    const RawReply missing =
        CallRaw(server_.channel(), "ConvBackward", request.SerializeAsString());
    ++answers_[missing.status.error_code()];
    EXPECT_EQ(missing.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << missing.status.error_message();
    EXPECT_TRUE(absl::StrContains(missing.trailers.field, "grad_output"))
        << missing.status.error_message();
  }

  TestServer server_{LargeConfig()};
  Sender sender_;
  std::map<int, int> answers_;
};

TEST_F(AdversarialTest, EveryLineIsAnsweredAsItExpects) {
  const std::vector<Json> cases = ReadCases();
  for (const Json& json : cases) {
    const Case c(json);
    SCOPED_TRACE(absl::StrCat(json["id"].get<std::string>(), " ",
                              json["name"].get<std::string>(), ", expect ",
                              c.expect));
    if (c.is_huge()) {
      SendHuge(c);
    } else {
      SendSmall(c);
    }
    server_.ExpectNothingHeld();
  }
  std::cout << cases.size() << " adversarial cases; answers by status:";
  for (const auto& [code, count] : answers_) {
    std::cout << " " << code << ": " << count;
  }
  std::cout << "\n";
}

}  // namespace
}  // namespace convgrad

// The C++ client's sessions, over real sockets.
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "client/cpp/client.h"
#include "client/cpp/session.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/cutting_proxy.h"
#include "tests/end_to_end/test_server.h"

namespace convgrad {
namespace {

using Floats = std::vector<float>;

absl::Span<const std::byte> ViewOf(const Floats& values) {
  return {reinterpret_cast<const std::byte*>(values.data()),
          values.size() * sizeof(float)};
}

Floats FloatsIn(absl::Span<const std::byte> bytes) {
  Floats values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Floats RandomFloats(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

ClientOptions OptionsFor(const std::string& address) {
  ClientOptions options;
  options.server = address;
  RetryPolicy retries;
  retries.max_attempts = 100;
  retries.initial = absl::Milliseconds(1);
  retries.longest = absl::Milliseconds(20);
  options.retries = retries;
  return options;
}

// conv1d: 1 item of 2 channels of 8, 3 filters of 3.
const TensorDescriptor kInput{DataType::kF32, Layout::kNCX, {1, 2, 8}};
const TensorDescriptor kWeight{DataType::kF32, Layout::kOIX, {3, 2, 3}};
const TensorDescriptor kGradOutput{DataType::kF32, Layout::kNCX, {1, 3, 6}};
constexpr int64_t kInputs = 16;
constexpr int64_t kWeights = 18;
constexpr int64_t kOutputs = 18;

ConvProblem Problem() {
  ConvProblem problem = *Parse("conv1d_n1_c2_o3_i8_k3");
  return problem;
}

// Adds the gradient of the kept x to the kept sum "gw".
OperationCall AddGradient(const Floats& grad_output) {
  OperationCall call;
  call.operation.problem = Problem();
  call.operation.direction = Direction::kBackward;
  auto& operands = call.operation.operands;
  operands[PositionOf(Operand::kInput)] = kInput;
  operands[PositionOf(Operand::kGradOutput)] = kGradOutput;
  call.kept_operands[PositionOf(Operand::kInput)] = "x";
  call.operands[PositionOf(Operand::kGradOutput)] = ViewOf(grad_output);
  call.operation.results = {{Result::kGradWeight, kWeight, 1.0f}};
  call.kept_results = {KeptResult{"gw", true}};
  return call;
}

Reason ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail ? detail->reason : Reason::kInternal;
}

class CppSessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Open(const std::string& address,
                                const SessionOptions& options = {}) {
    auto session = Session::Open(OptionsFor(address), options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  std::unique_ptr<Session> Open() { return Open(server_.address()); }

  TestServer server_;
};

TEST_F(CppSessionTest, PutsAndGets) {
  const auto session = Open();
  const Floats weight = RandomFloats(kWeights, 1);
  EXPECT_EQ(*session->Put("w", kWeight, ViewOf(weight)), 1);
  const auto got = session->Get("w");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->descriptor, kWeight);
  EXPECT_EQ(got->version, 1);
  EXPECT_EQ(FloatsIn(got->data.bytes()), weight);
  const auto last = session->GetAs("w", DataType::kF32, Layout::kOXI);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(FloatsIn(last->data.bytes())[1], weight[3]);
  const auto list = session->List();
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ((*list)[0].name(), "w");
  EXPECT_TRUE(session->Drop({{"w"}}).ok());
  EXPECT_EQ(session->number(), 2);
  EXPECT_TRUE(absl::IsNotFound(session->Get("w").status()));
  EXPECT_TRUE(session->Close().ok());
  EXPECT_TRUE(absl::IsNotFound(session->Renew()));
}

TEST_F(CppSessionTest, ComputesWithKeptTensors) {
  const auto session = Open();
  const Floats input = RandomFloats(kInputs, 1);
  const Floats grad_output = RandomFloats(kOutputs, 2);
  ASSERT_TRUE(session->Put("x", kInput, ViewOf(input)).ok());
  OperationCall call = AddGradient(grad_output);
  call.kept_results.clear();
  const auto once = session->Run(call);
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_EQ(session->number(), 1);
  const Floats gradient = FloatsIn(once->results[0].bytes);

  for (int i = 0; i < 2; ++i) {
    const auto added = session->Run(AddGradient(grad_output));
    ASSERT_TRUE(added.ok()) << added.status();
    EXPECT_EQ(added->results[0].bytes.data(), nullptr);
  }
  EXPECT_EQ(session->number(), 3);
  const auto sum = session->Get("gw");
  ASSERT_TRUE(sum.ok()) << sum.status();
  for (int64_t i = 0; i < kWeights; ++i) {
    EXPECT_EQ(FloatsIn(sum->data.bytes())[i], gradient[i] + gradient[i]);
  }
}

TEST_F(CppSessionTest, AFailedChangeLeavesTheNextOneFree) {
  const auto session = Open();
  const Floats grad_output = RandomFloats(kOutputs, 2);
  const absl::Status missing = session->Run(AddGradient(grad_output)).status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_EQ(DetailOf(missing)->field,
            "operation.operands.input.kept.tensor_id");
  EXPECT_EQ(session->number(), 0);
  EXPECT_EQ(*session->Put("x", kInput, ViewOf(RandomFloats(kInputs, 1))), 1);
  EXPECT_TRUE(session->Run(AddGradient(grad_output)).ok());
  EXPECT_EQ(session->number(), 2);
}

TEST_F(CppSessionTest, AChangeThatIsGivenUpDoesNotStopTheNext) {
  const auto session = Open();
  const TensorDescriptor large{DataType::kF32, Layout::kNCX, {1, 1 << 20}};
  const Floats values(1 << 20, 1);
  for (int i = 1; i <= 20; ++i) {
    // Some are committed, some aren't.
    const auto put = session->Put({{"x", large, ViewOf(values)}},
                                  absl::Now() + absl::Microseconds(200 * i));
    const absl::StatusOr<int64_t> next =
        session->Put("y", kInput, ViewOf(RandomFloats(kInputs, i)));
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(session->number(), *next);
    EXPECT_EQ(session->Get("y")->version, *next);
    if (put.ok()) {
      EXPECT_EQ(*put + 1, *next);
    }
  }
}

TEST_F(CppSessionTest, WhoResumesTakesOver) {
  const auto first = Open();
  ASSERT_TRUE(first->Put("x", kInput, ViewOf(RandomFloats(kInputs, 1))).ok());
  auto second = Session::Resume(OptionsFor(server_.address()), first->id());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->number(), 1);
  EXPECT_EQ(*(*second)->Put("x", kInput, ViewOf(RandomFloats(kInputs, 2))), 2);
  for (int i = 0; i < 2; ++i) {
    const absl::Status late =
        first->Put("x", kInput, ViewOf(RandomFloats(kInputs, 3))).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(late)) << late;
    EXPECT_EQ(ReasonOf(late), Reason::kTakenOver);
  }
  EXPECT_EQ((*second)->Get("x")->version, 2);
}

TEST_F(CppSessionTest, ThreadsShareASession) {
  const auto session = Open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&session, i] {
      const std::string name = absl::StrCat("x", i);
      for (int k = 0; k < 25; ++k) {
        const Floats values = RandomFloats(kInputs, 100 * i + k);
        ASSERT_TRUE(session->Put(name, kInput, ViewOf(values)).ok());
        const auto got = session->Get(name);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(FloatsIn(got->data.bytes()), values);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(session->number(), 100);
}

TEST_F(CppSessionTest, RefusesWhatItCannotSend) {
  ClientOptions several = OptionsFor("127.0.0.1:1,127.0.0.1:2");
  EXPECT_EQ(DetailOf(Session::Open(several).status())->field, "server");
  const auto session = Open();
  const Floats values(3);
  const absl::Status size = session->Put("x", kInput, ViewOf(values)).status();
  EXPECT_EQ(ReasonOf(size), Reason::kByteCountMismatch);
  // Nothing was sent.
  EXPECT_EQ(*session->Put("x", kInput, ViewOf(RandomFloats(kInputs, 1))), 1);
  auto client = Client::Connect(OptionsFor(server_.address()));
  const Floats grad_output = RandomFloats(kOutputs, 2);
  EXPECT_EQ(DetailOf((*client)->Run(AddGradient(grad_output)).status())->field,
            "kept_operands");
}

TEST_F(CppSessionTest, ListsSessions) {
  const auto session = Open(server_.address(), {.name = "train"});
  ASSERT_TRUE(session->Put("x", kInput, ViewOf(RandomFloats(kInputs, 1))).ok());
  auto client = Client::Connect(OptionsFor(server_.address()));
  const auto list = (*client)->Sessions(false, absl::Now() + absl::Minutes(1));
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->sessions_size(), 1);
  EXPECT_EQ(list->sessions(0).name(), "train");
  EXPECT_EQ(list->sessions(0).tensors(), 1);
}

// Tensors of 9 MiB, messages of 1 MiB; the connection is cut in the put's
// frames, in its answer, and in the get's frames.
TEST(CppSessionStreamTest, PutsAndGetsWhatNoMessageHolds) {
  Config config = TestConfig();
  config.memory_budget_bytes = int64_t{512} << 20;
  config.max_message_bytes = int64_t{1} << 20;
  TestServer server(config);
  CuttingProxy proxy(server.address());
  auto session = Session::Open(OptionsFor(proxy.address()));
  ASSERT_TRUE(session.ok()) << session.status();
  const TensorDescriptor large{DataType::kF32, Layout::kOIX, {9, 256, 1024}};
  constexpr auto kToServer = CuttingProxy::Direction::kToServer;
  constexpr auto kToClient = CuttingProxy::Direction::kToClient;
  int64_t number = 0;
  for (const auto& [direction, at] :
       std::vector<std::pair<CuttingProxy::Direction, int64_t>>{
           {kToServer, 100},
           {kToServer, 5 << 20},
           {kToServer, 9 << 20},
           {kToClient, 50},
           {kToClient, 6 << 20}}) {
    const Floats values = RandomFloats(9 << 18, ++number);
    proxy.CutAfter(direction, at);
    const auto put =
        (*session)->Put({{"w", large, ViewOf(values)}, {"x", kInput, {}}});
    EXPECT_EQ(ReasonOf(put.status()), Reason::kByteCountMismatch);
    const Floats small = RandomFloats(kInputs, number);
    EXPECT_EQ(*(*session)->Put(
                  {{"w", large, ViewOf(values)}, {"x", kInput, ViewOf(small)}}),
              number);
    const auto got = (*session)->Get("w");
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->version, number);
    EXPECT_EQ(FloatsIn(got->data.bytes()), values);
    const auto last = (*session)->GetAs("w", DataType::kF32, Layout::kOXI);
    ASSERT_TRUE(last.ok()) << last.status();
    EXPECT_EQ(FloatsIn(last->data.bytes())[1], values[1024]);
    EXPECT_EQ(FloatsIn((*session)->Get("x")->data.bytes()), small);
  }
  EXPECT_GE(proxy.cuts(), 4);
  EXPECT_TRUE((*session)->Close().ok());
  server.ExpectNothingHeld();
}

// The connection is cut after each byte of a change and of its answer.
TEST_F(CppSessionTest, CutConnectionsChangeNoBitOfASum) {
  constexpr int64_t kCuts = 1000;
  CuttingProxy proxy(server_.address());
  const auto cut = Open(proxy.address());
  const auto undisturbed = Open();
  const auto step = [](Session* session, uint64_t number) {
    const Floats input = RandomFloats(kInputs, 2 * number);
    const Floats grad_output = RandomFloats(kOutputs, 2 * number + 1);
    const auto put = session->Put({{"x", kInput, ViewOf(input)}},
                                  absl::Now() + absl::Minutes(1));
    ASSERT_TRUE(put.ok()) << put.status();
    const auto added = session->Run(AddGradient(grad_output));
    ASSERT_TRUE(added.ok()) << added.status();
  };
  // A step takes some 900 bytes one way and 300 back, more on a new connection.
  constexpr int64_t kMostToServer = 1200;
  constexpr int64_t kMostToClient = 400;
  uint64_t number = 0;
  while (proxy.cuts() < kCuts && !HasFailure()) {
    if (!proxy.is_armed()) {
      const int64_t next = proxy.cuts();
      if (next % 2 == 0) {
        proxy.CutAfter(CuttingProxy::Direction::kToServer,
                       next * 7 / 2 % kMostToServer);
      } else {
        proxy.CutAfter(CuttingProxy::Direction::kToClient,
                       next / 2 % kMostToClient);
      }
    }
    step(cut.get(), number);
    step(undisturbed.get(), number);
    ++number;
  }
  EXPECT_EQ(cut->number(), static_cast<int64_t>(2 * number));
  EXPECT_EQ(FloatsIn(cut->Get("gw")->data.bytes()),
            FloatsIn(undisturbed->Get("gw")->data.bytes()));
  EXPECT_TRUE(cut->Close().ok());
  EXPECT_TRUE(undisturbed->Close().ok());
  server_.ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad

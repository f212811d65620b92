// Tests the concurrent work of the C++ client's sessions: several changes in
// flight, renewal, and streams of tensors that are larger than a message.
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/end_to_end/client/cpp_session.h"
#include "tests/end_to_end/peers/cutting_proxy.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

using CppSessionPipelineTest = CppSessionTest;

TEST_F(CppSessionPipelineTest, SubmittedChangesTakeEffectInOrder) {
  const auto session = Open();
  std::vector<Floats> values;
  for (int i = 0; i < 200; ++i) values.push_back(RandomFloats(kInputs, i));
  std::vector<std::future<absl::StatusOr<int64_t>>> puts;
  for (const Floats& value : values) {
    puts.push_back(session->SubmitPut({{"x", kInput, ViewOf(value)}}));
  }
  const auto got = session->Get("x");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(FloatsIn(got->data.bytes()), values.back());
  for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(*puts[i].get(), i + 1);
  EXPECT_EQ(session->number(), 200);
}

TEST_F(CppSessionPipelineTest, WhatBeganBehindAFailureFailsWithIt) {
  const auto session = Open();
  const TensorDescriptor large{DataType::kF32, Layout::kNCX, {1, 1 << 20}};
  const Floats values(1 << 20, 1);
  const Floats small = RandomFloats(kInputs, 1);
  auto first = session->SubmitPut({{"first", large, ViewOf(values)}});
  auto failing = session->SubmitPut({{"no/good", kInput, ViewOf(small)}});
  auto behind = session->SubmitPut({{"behind", kInput, ViewOf(small)}});
  EXPECT_EQ(ReasonOf(session->Get("behind").status()), Reason::kEpochEnded);
  EXPECT_EQ(*first.get(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(failing.get().status()));
  const absl::Status why = behind.get().status();
  EXPECT_EQ(ReasonOf(why), Reason::kEpochEnded) << why;
  EXPECT_EQ(session->number(), 1);
  EXPECT_EQ(*session->Put("next", kInput, ViewOf(small)), 2);
  EXPECT_EQ(session->List()->size(), 2u);
}

TEST_F(CppSessionPipelineTest, CutConnectionsChangeNoBitOfSubmittedSums) {
  CuttingProxy proxy(server_.address());
  const auto cut = Open(proxy.address());
  const auto undisturbed = Open();
  const Floats input = RandomFloats(kInputs, 1);
  for (const auto& session : {cut.get(), undisturbed.get()}) {
    ASSERT_TRUE(session->Put("x", kInput, ViewOf(input)).ok());
  }
  int64_t number = 1;
  while (proxy.cuts() < 60 && !HasFailure()) {
    if (!proxy.is_armed()) {
      proxy.CutAfter(proxy.cuts() % 2 == 0 ? CuttingProxy::Direction::kToServer
                                           : CuttingProxy::Direction::kToClient,
                     proxy.cuts() * 97 % 4000);
    }
    std::vector<Floats> grad_outputs;
    for (int i = 0; i < 10; ++i) {
      grad_outputs.push_back(RandomFloats(kOutputs, ++number));
    }
    std::vector<std::future<absl::StatusOr<OperationReply>>> runs;
    for (const Floats& grad_output : grad_outputs) {
      OperationCall call = AddGradient(grad_output);
      call.deadline = absl::Now() + absl::Minutes(1);
      runs.push_back(cut->SubmitRun(std::move(call)));
      ASSERT_TRUE(undisturbed->Run(AddGradient(grad_output)).ok());
    }
    for (auto& run : runs) {
      const auto reply = run.get();
      ASSERT_TRUE(reply.ok()) << reply.status();
    }
  }
  EXPECT_EQ(cut->number(), number);
  EXPECT_EQ(FloatsIn(cut->Get("gw")->data.bytes()),
            FloatsIn(undisturbed->Get("gw")->data.bytes()));
}

TEST_F(CppSessionPipelineTest, ASessionIsRenewedAsLongAsItIsThere) {
  const auto session = Open(server_.address(), {.lease = absl::Seconds(1)});
  ASSERT_TRUE(session->Put("x", kInput, ViewOf(RandomFloats(kInputs, 1))).ok());
  auto client = Client::Connect(OptionsFor(server_.address()));
  const auto sessions = [&client] {
    return (*client)
        ->Sessions(false, absl::Now() + absl::Seconds(20))
        ->sessions_size();
  };
  // Waits for two leases, one after the other, of sessions that aren't renewed.
  v1::OpenSessionRequest open;
  open.set_lease_seconds(1);
  for (int i = 0; i < 2; ++i) {
    const SessionClient other(server_.channel(), open);
    EXPECT_EQ(sessions(), 2);
    while (sessions() == 2) std::this_thread::yield();
  }
  EXPECT_TRUE(session->Get("x").ok());
}

// Tensors have 9 MiB and messages 1 MiB. The connection is cut in the put's
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

}  // namespace
}  // namespace convgrad

// Tests the C++ client's sessions over real sockets.
#include "tests/end_to_end/client/cpp_session.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/peers/cutting_proxy.h"

namespace convgrad {
namespace {

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
  EXPECT_TRUE(session->Drop({"w"}).ok());
  EXPECT_TRUE(session->Drop({}).ok());
  EXPECT_EQ(session->number(), 3);
  EXPECT_TRUE(absl::IsNotFound(session->Get("w").status()));
  EXPECT_TRUE(session->Close().ok());
  EXPECT_TRUE(absl::IsNotFound(session->Renew()));
}

TEST_F(CppSessionTest, KeepsTheGroupsOfABlockedWeight) {
  const auto session = Open();
  // As many bytes as with one group, or more.
  for (const int64_t groups : {2, 4}) {
    const TensorDescriptor weight{
        DataType::kF32, Layout::kFractalZ3D, {8, 3, 3, 3}, 8, groups};
    const Floats values = RandomFloats(*ByteSize(weight) / 4, 1);
    ASSERT_TRUE(session->Put("w", weight, ViewOf(values)).ok());
    const auto got = session->Get("w");
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->descriptor, weight);
    EXPECT_EQ(FloatsIn(got->data.bytes()), values);
  }
}

TEST_F(CppSessionTest, KeepsImages) {
  const auto session = Open();
  const std::vector<uint16_t> pixels = {0, 1, 255, 256, 65534, 65535};
  const TensorDescriptor images{DataType::kU16, Layout::kNCX, {2, 3, 1}};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(
        session->Put({{"x", images, ViewOf(pixels)}}, {.dedupe = true}).ok());
    const auto got = session->Get("x");
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->descriptor, images);
    EXPECT_EQ(got->data.bytes(), ViewOf(pixels));
  }
  EXPECT_EQ(
      server_.server().gauges().SumOf("convgrad_digest_saved_bytes_total"), 12);
  const absl::Status floats =
      session->GetAs("x", DataType::kF32, Layout::kNCX).status();
  EXPECT_TRUE(absl::IsInvalidArgument(floats)) << floats;
  const TensorDescriptor longer{DataType::kU16, Layout::kNCX, {2, 4, 1}};
  EXPECT_TRUE(absl::IsInvalidArgument(
      session->Put("y", longer, ViewOf(pixels)).status()));
  EXPECT_TRUE(absl::IsNotFound(session->Get("y").status()));
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
    // Some changes are committed, others aren't.
    const auto put =
        session->Put({{"x", large, ViewOf(values)}},
                     {.deadline = absl::Now() + absl::Microseconds(200 * i)});
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

TEST_F(CppSessionTest, WhoWasTakenOverClosesNothing) {
  const auto first = Open();
  auto second = Session::Resume(OptionsFor(server_.address()), first->id());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(ReasonOf(first->Close()), Reason::kTakenOver);
  EXPECT_TRUE((*second)->Renew().ok());
  // Its own thread finds out as well.
  EXPECT_EQ(ReasonOf(first->Renew()), Reason::kTakenOver);
  EXPECT_EQ(ReasonOf(first->List().status()), Reason::kTakenOver);
  EXPECT_TRUE((*second)->Close().ok());
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
  // The client sent no bytes.
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

// The test cuts the connection after each byte of a change and of its answer.
TEST_F(CppSessionTest, CutConnectionsChangeNoBitOfASum) {
  constexpr int64_t kCuts = 1000;
  CuttingProxy proxy(server_.address());
  const auto cut = Open(proxy.address());
  const auto undisturbed = Open();
  const auto step = [](Session* session, uint64_t number) {
    const Floats input = RandomFloats(kInputs, 2 * number);
    const Floats grad_output = RandomFloats(kOutputs, 2 * number + 1);
    const auto put = session->Put({{"x", kInput, ViewOf(input)}},
                                  {.deadline = absl::Now() + absl::Minutes(1)});
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

TEST_F(CppSessionTest, CallsTheAddressThatTheServerAdvertises) {
  Config config = TestConfig();
  config.advertise = server_.address();  // another server's, so that it shows
  TestServer other(config);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      Session::Open({.server = other.address()}).status()));
  config.advertise = "elsewhere.test:7070";  // not of this host
  TestServer third(config);
  EXPECT_TRUE((*Session::Open({.server = third.address()}))->Renew().ok());
}

TEST_F(CppSessionTest, ASilentConnectionIsGivenUp) {
  CuttingProxy proxy(server_.address());
  const auto session = *Session::Open(
      {.server = proxy.address(), .keepalive = absl::Seconds(1)});
  const Floats input = RandomFloats(kInputs, 1);
  for (int i = 0; i < 2; ++i) {
    proxy.Freeze();
    EXPECT_TRUE(session
                    ->Put({{"x", kInput, ViewOf(input)}},
                          {.deadline = absl::Now() + absl::Minutes(1)})
                    .ok());
  }
  EXPECT_EQ(session->number(), 2);
  EXPECT_EQ(FloatsIn(session->Get("x")->data.bytes()), input);
}

}  // namespace
}  // namespace convgrad

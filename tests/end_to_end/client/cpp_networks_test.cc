// Tests the C++ client's networks over real sockets.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "client/cpp/sessions/networks.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/client/cpp_session.h"
#include "tests/end_to_end/peers/cutting_proxy.h"

namespace convgrad {
namespace {

// The program is y = x w^T, and the sum over rows of its cross entropy.
constexpr char kText[] =
    "input x\n"
    "input target index\n"
    "parameter w [2, 3]\n"
    "y = linear(x, w)\n"
    "loss = cross_entropy(y, target, reduction=sum)\n"
    "output loss\n"
    "output y\n";

TensorDescriptor F32(Dims dims) {
  return {DataType::kF32, Layout::kNCX, std::move(dims)};
}

v1::UpdateParametersRequest Sgd(double learning_rate, double momentum) {
  v1::UpdateParametersRequest update;
  update.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_SGD);
  auto* group = update.add_groups();
  group->add_parameters(std::string("w"));
  group->set_learning_rate(learning_rate);
  group->set_momentum(momentum);
  return update;
}

// A session with the program. All weights are 1.
class Trainer {
 public:
  explicit Trainer(const std::string& address)
      : session_(*Session::Open(OptionsFor(address))),
        networks_(session_.get()) {
    EXPECT_TRUE(session_->Put("w", F32({2, 3}), ViewOf(Floats(6, 1.0f))).ok());
    EXPECT_TRUE(networks_.Load("net", *ParseProgram(kText)).ok());
  }

  Session& session() { return *session_; }
  Networks& networks() { return networks_; }
  Floats Get(const std::string& name) {
    const auto found = session_->Get(name);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? FloatsIn(found->data.bytes()) : Floats();
  }
  ProgramRun Run() const {
    return {.program = "net",
            .inputs = {{.name = "x",
                        .descriptor = F32({2, 3}),
                        .bytes = ViewOf(rows_),
                        .kept = {}},
                       {.name = "target",
                        .descriptor = {DataType::kI64, Layout::kNCX, {2}},
                        .bytes = ViewOf(labels_),
                        .kept = {}}},
            .fetched = {},
            .compute_dtype = DataType::kF32,
            .tape = {},
            .backward = {},
            .update = {},
            .is_change = false,
            .deadline = absl::InfiniteFuture()};
  }

 private:
  const Floats rows_ = {0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> labels_ = {0, 1};
  const std::unique_ptr<Session> session_;
  Networks networks_;
};

TEST(CppNetworksTest, RunsAsARead) {
  TestServer server;
  Trainer trainer(server.address());
  const int64_t number = trainer.session().number();
  const auto reply = trainer.networks().Run(trainer.Run());
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->values.size(), 2u);
  EXPECT_EQ(reply->values[0].name, "loss");
  EXPECT_NEAR(FloatsIn(reply->values[0].data.bytes())[0], 2 * std::log(2.0),
              1e-6);
  EXPECT_EQ(reply->values[1].descriptor, F32({2, 2}));
  EXPECT_EQ(FloatsIn(reply->values[1].data.bytes()), (Floats{3, 3, 12, 12}));
  EXPECT_FALSE(reply->report.backend().empty());
  EXPECT_EQ(trainer.session().number(), number);
}

TEST(CppNetworksTest, TrainsByItsOwnLoss) {
  TestServer server;
  Trainer trainer(server.address());
  const int64_t number = trainer.session().number();
  ProgramRun run = trainer.Run();
  run.fetched = {"loss"};
  run.backward.emplace().add_input_gradients("x");
  const auto reply = trainer.networks().Run(run);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->values.size(), 2u);
  EXPECT_EQ(reply->values[1].name, "x#gradient");
  // Both classes have probability 1/2, so the gradients of y are +-1/2 and
  // those of w are differences of the rows.
  EXPECT_EQ(FloatsIn(reply->values[1].data.bytes()), Floats(6, 0.0f));
  ASSERT_TRUE(trainer.networks().Update(Sgd(0.5, 0)).ok());
  EXPECT_EQ(trainer.Get("w"),
            (Floats{0.25f, 0.25f, 0.25f, 1.75f, 1.75f, 1.75f}));
  EXPECT_EQ(trainer.session().number(), number + 2);
}

TEST(CppNetworksTest, StepsInTheSameCall) {
  TestServer server;
  Trainer trainer(server.address());
  const int64_t number = trainer.session().number();
  ProgramRun run = trainer.Run();
  run.backward.emplace();
  run.update = Sgd(0.5, 0);
  const auto reply = trainer.networks().Run(run);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_TRUE(reply->update.has_value());
  EXPECT_FALSE(reply->update->skipped());
  EXPECT_EQ(trainer.Get("w"),
            (Floats{0.25f, 0.25f, 0.25f, 1.75f, 1.75f, 1.75f}));
  EXPECT_EQ(trainer.session().number(), number + 1);
}

TEST(CppNetworksTest, GoesBackwardFromATape) {
  TestServer server;
  Trainer trainer(server.address());
  ProgramRun run = trainer.Run();
  run.tape = "tape";
  ASSERT_TRUE(trainer.networks().Run(run).ok());
  const Floats ones(4, 1.0f);
  ProgramBackward backward{.tape = "tape",
                           .output_gradients = {{.name = "y",
                                                 .descriptor = F32({2, 2}),
                                                 .bytes = ViewOf(ones),
                                                 .kept = {}}},
                           .input_gradients = {"x"},
                           .leave_parameters = false,
                           .retain = false,
                           .deadline = absl::InfiniteFuture()};
  const auto reply = trainer.networks().Backward(backward);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(FloatsIn(reply->values[0].data.bytes()), Floats(6, 2.0f));
  EXPECT_EQ(trainer.Get("w#gradient"), (Floats{3, 5, 7, 3, 5, 7}));
  // The backward has dropped the tape.
  EXPECT_TRUE(absl::IsNotFound(trainer.networks().Backward(backward).status()));
  ASSERT_TRUE(trainer.networks().Update(Sgd(1, 0)).ok());
  EXPECT_EQ(trainer.Get("w"), (Floats{-2, -4, -6, -2, -4, -6}));
}

TEST(CppNetworksTest, TakesKeptInputsAndForgetsPrograms) {
  TestServer server;
  Trainer trainer(server.address());
  const Floats rows(6, 2.0f);
  ASSERT_TRUE(trainer.session().Put("kept", F32({2, 3}), ViewOf(rows)).ok());
  ProgramRun run = trainer.Run();
  run.inputs[0] = {.name = "x", .descriptor = {}, .bytes = {}, .kept = "kept"};
  run.fetched = {"y"};
  const auto reply = trainer.networks().Run(run);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(FloatsIn(reply->values[0].data.bytes()), Floats(4, 6.0f));
  ASSERT_TRUE(trainer.networks().Drop({{"net"}}).ok());
  EXPECT_TRUE(absl::IsNotFound(trainer.networks().Run(run).status()));
}

TEST(CppNetworksTest, TakesUnsignedIntegers) {
  TestServer server;
  Trainer trainer(server.address());
  const std::vector<uint16_t> rows = {0, 1, 65535, 256, 2, 3};
  ProgramRun run = trainer.Run();
  run.inputs[0].descriptor.dtype = DataType::kU16;
  run.inputs[0].bytes = ViewOf(rows);
  run.fetched = {"y"};
  const auto reply = trainer.networks().Run(run);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(FloatsIn(reply->values[0].data.bytes()),
            (Floats{65536, 65536, 261, 261}));
}

TEST(CppNetworksTest, RefusesBytesThatDoNotFit) {
  TestServer server;
  Trainer trainer(server.address());
  ProgramRun run = trainer.Run();
  run.inputs[0].descriptor.dims = {4, 3};
  const absl::Status status = trainer.networks().Run(run).status();
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail) << status;
  EXPECT_EQ(detail->reason, Reason::kByteCountMismatch);
  EXPECT_EQ(detail->field, "inputs.x");
}

// The test cuts connections at many places of a training step and of its reply.
TEST(CppNetworksTest, CutConnectionsChangeNoBitOfTheWeights) {
  TestServer server;
  CuttingProxy proxy(server.address());
  Trainer cut(proxy.address());
  Trainer undisturbed(server.address());
  const auto step = [](Trainer* trainer, int i) {
    ProgramRun run = trainer->Run();
    run.backward.emplace();
    const auto reply = trainer->networks().Run(run);
    ASSERT_TRUE(reply.ok()) << reply.status();
    const auto updated =
        trainer->networks().Update(Sgd(0.01 * (1 + i % 3), 0.9));
    ASSERT_TRUE(updated.ok()) << updated.status();
  };
  for (int i = 0; i < 100 && !::testing::Test::HasFailure(); ++i) {
    if (!proxy.is_armed()) {
      const bool is_request = i % 2 == 0;
      proxy.CutAfter(is_request ? CuttingProxy::Direction::kToServer
                                : CuttingProxy::Direction::kToClient,
                     i * 7 % (is_request ? 600 : 200));
    }
    step(&cut, i);
    step(&undisturbed, i);
  }
  EXPECT_GT(proxy.cuts(), 20);
  EXPECT_EQ(cut.session().number(), undisturbed.session().number());
  EXPECT_EQ(cut.Get("w"), undisturbed.Get("w"));
  EXPECT_NE(cut.Get("w"), Floats(6, 1.0f));
}

}  // namespace
}  // namespace convgrad

// Tests durable sessions of the C++ client: a real server is killed and started
// again, and the client goes on by itself.
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/sessions/networks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/client/cpp_session.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/temporary_folder.h"

namespace convgrad {
namespace {

constexpr int kSteps = 40;
constexpr char kNever[] = "--snapshot_interval=24h";

constexpr char kText[] =
    "input x\n"
    "parameter w [2, 3]\n"
    "y = linear(x, w)\n"
    "output y\n";

const TensorDescriptor kRows{DataType::kF32, Layout::kNCX, {4, 3}};
const TensorDescriptor kWeights2x3{DataType::kF32, Layout::kNCX, {2, 3}};
const TensorDescriptor kScores{DataType::kF32, Layout::kNCX, {4, 2}};

class CppDurableTest : public ::testing::Test {
 protected:
  ~CppDurableTest() override {
    server_.reset();
    std::filesystem::remove_all(state_dir());
    std::filesystem::remove(socket());
  }

  std::string state_dir() const { return folder_.path() + "/state"; }
  std::string socket() const { return folder_.path() + "/socket"; }
  std::string address() const { return absl::StrCat("unix:", socket()); }

  // Starts the server with these flags, or with those of the last start.
  void Start(std::vector<std::string> flags = {}) {
    if (!flags.empty()) flags_ = std::move(flags);
    std::vector<std::string> all = {absl::StrCat("--state_dir=", state_dir()),
                                    absl::StrCat("--listen=", address()),
                                    "--workers=1", "--threads_per_worker=1"};
    all.insert(all.end(), flags_.begin(), flags_.end());
    server_ = std::make_unique<ChildServer>(all);
  }
  void KillAndStart() {
    server_->Signal(SIGKILL);
    server_->Await();
    Start();
  }

  std::unique_ptr<Session> Open() {
    ClientOptions options = OptionsFor(address());
    options.retries->max_attempts = 10000;
    auto session = Session::Open(options, {.durable = true});
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  static Floats Get(Session* session, const std::string& name) {
    const auto found = session->Get(name);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? FloatsIn(found->data.bytes()) : Floats();
  }

  const TemporaryFolder folder_;
  std::vector<std::string> flags_;
  std::unique_ptr<ChildServer> server_;
};

// Trains by its own loss, sum(y^2) / 2, from a tape: three changes a step.
Floats Train(Session* session, const std::function<void(int)>& before_step) {
  Networks networks(session);
  const Floats start = RandomFloats(6, 1);
  EXPECT_TRUE(session->Put("w", kWeights2x3, ViewOf(start)).ok());
  EXPECT_TRUE(networks.Load("net", *ParseProgram(kText)).ok());
  v1::UpdateParametersRequest update;
  update.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_SGD);
  update.add_groups()->add_parameters(std::string("w"));
  update.mutable_groups(0)->set_learning_rate(0.01);
  update.mutable_groups(0)->set_momentum(0.9);
  for (int step = 1; step <= kSteps; ++step) {
    before_step(step);
    const Floats rows = RandomFloats(12, 100 + step);
    ProgramRun run;
    run.program = "net";
    run.inputs = {{"x", kRows, ViewOf(rows)}};
    run.tape = "tape";
    const auto reply = networks.Run(run);
    EXPECT_TRUE(reply.ok()) << step << ": " << reply.status();
    if (!reply.ok()) return {};
    ProgramBackward backward;
    backward.tape = "tape";
    backward.output_gradients = {{"y", kScores, reply->values[0].data.bytes()}};
    const absl::Status status = networks.Backward(backward).status();
    EXPECT_TRUE(status.ok()) << step << ": " << status;
    update.set_trainer_state(absl::StrCat("step ", step));
    EXPECT_TRUE(networks.Update(update).ok());
  }
  const auto found = session->Get("w");
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? FloatsIn(found->data.bytes()) : Floats();
}

TEST_F(CppDurableTest, KillsDontChangeTheBitsOfATraining) {
  Start({"--snapshot_interval=100ms"});
  const auto undisturbed = Open();
  const Floats expected = Train(undisturbed.get(), [](int) {});
  const auto session = Open();
  std::atomic<int> begun = 0;
  std::thread killer([&] {
    std::mt19937 random(3);
    for (int step = 3; step <= kSteps; step += 4) {
      while (begun < step) absl::SleepFor(absl::Milliseconds(1));
      absl::SleepFor(absl::Milliseconds(random() % 40));
      KillAndStart();
    }
  });
  const Floats trained = Train(session.get(), [&](int step) {
    begun = step;
    absl::SleepFor(absl::Milliseconds(20));
  });
  begun = kSteps;
  killer.join();
  EXPECT_EQ(trained, expected);
  EXPECT_EQ(session->number(), 2 + 3 * kSteps);
}

TEST_F(CppDurableTest, AllSinceTheStartIsRepeated) {
  Start({kNever});
  const auto undisturbed = Open();
  const Floats expected = Train(undisturbed.get(), [](int) {});
  const auto session = Open();
  EXPECT_EQ(Train(session.get(),
                  [&](int step) {
                    if (step % 15 == 0) KillAndStart();
                  }),
            expected);
}

TEST_F(CppDurableTest, RepeatsOperationsAndPuts) {
  Start({kNever, "--max_message_bytes=131072"});
  const auto session = Open();
  const Floats large = RandomFloats(1 << 17, 5);  // 512 KiB: a stream
  const TensorDescriptor descriptor{DataType::kF32, Layout::kNCX, {1 << 17}};
  ASSERT_TRUE(session->Put("large", descriptor, ViewOf(large)).ok());
  {
    const Floats input = RandomFloats(kInputs, 6);
    ASSERT_TRUE(session->Put("x", kInput, ViewOf(input)).ok());
    const Floats zero(kWeights, 0.0f);
    ASSERT_TRUE(session->Put("gw", kWeight, ViewOf(zero)).ok());
    // The server has these bytes, so that only their digest is sent.
    ASSERT_TRUE(
        session->Put({{"twin", descriptor, ViewOf(large)}}, {.dedupe = true})
            .ok());
  }
  const Floats grad_output = RandomFloats(kOutputs, 7);
  ASSERT_TRUE(session->Run(AddGradient(grad_output)).ok());
  ASSERT_TRUE(session->Drop({"large"}).ok());
  const Floats expected = Get(session.get(), "gw");
  KillAndStart();
  EXPECT_EQ(Get(session.get(), "gw"), expected);
  EXPECT_EQ(Get(session.get(), "twin"), large);
  EXPECT_TRUE(absl::IsNotFound(session->Get("large").status()));
  EXPECT_EQ(session->durable_number(), 0);
  EXPECT_EQ(*session->SaveState(), 6);
  EXPECT_EQ(session->durable_number(), 6);
}

TEST_F(CppDurableTest, ResumesAtTheTrainersState) {
  Start({kNever});
  const auto session = Open();
  const Floats first = RandomFloats(6, 1);
  const Floats second = RandomFloats(6, 2);
  ASSERT_TRUE(session
                  ->Put({{"w", kWeights2x3, ViewOf(first)}},
                        {.trainer_state = "epoch 1"})
                  .ok());
  ASSERT_TRUE(session->SaveState("best").ok());
  ASSERT_TRUE(session->Put("w", kWeights2x3, ViewOf(second)).ok());
  const auto restored = session->RestoreState("best");
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->trainer_state(), "epoch 1");
  EXPECT_EQ(Get(session.get(), "w"), first);
  EXPECT_TRUE(absl::IsNotFound(session->RestoreState("worst").status()));
  EXPECT_TRUE(session->DropState("best").ok());
  ASSERT_TRUE(session->SaveState().ok());
  KillAndStart();
  const auto again = Session::Resume(OptionsFor(address()), session->id());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->answer().trainer_state(), "epoch 1");
  EXPECT_TRUE((*again)->answer().durable());
  EXPECT_EQ(Get(again->get(), "w"), first);
  EXPECT_EQ(ReasonOf(session->Put("w", kWeights2x3, ViewOf(second)).status()),
            Reason::kTakenOver);
}

TEST_F(CppDurableTest, ARestartHidesNoTakeOver) {
  Start({kNever});
  const auto first = Open();
  auto unseen = Open();
  const auto second = Session::Resume(OptionsFor(address()), first->id());
  ASSERT_TRUE(second.ok()) << second.status();
  KillAndStart();
  const Floats weights = RandomFloats(6, 1);
  EXPECT_EQ(ReasonOf(first->Put("w", kWeights2x3, ViewOf(weights)).status()),
            Reason::kTakenOver);
  EXPECT_EQ(ReasonOf(first->Close()), Reason::kTakenOver);
  ASSERT_TRUE((*second)->Put("w", kWeights2x3, ViewOf(weights)).ok());
  EXPECT_EQ(Get(second->get(), "w"), weights);
  EXPECT_TRUE((*second)->Close().ok());
  // The own session may be closed before anything else.
  EXPECT_TRUE(unseen->Close().ok());
}

TEST_F(CppDurableTest, RefusesReplayBytesOfNothing) {
  Start({kNever});
  const auto session = Session::Open(OptionsFor(address()),
                                     {.durable = true, .replay_bytes = 0});
  EXPECT_EQ(DetailOf(session.status())->field, "replay_bytes");
}

}  // namespace
}  // namespace convgrad

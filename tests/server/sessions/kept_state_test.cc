// Tests the effect of a change's writes on a session's contents.
#include "server/sessions/kept_state.h"

#include <memory>
#include <string>
#include <utility>

#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

class KeptStateTest : public testing::Test {
 protected:
  KeptTensor Tensor(int64_t bytes) {
    const TensorDescriptor descriptor{
        DataType::kU8, Layout::kNCX, {1, bytes}, 0, 1};
    return {descriptor, *memory_->Take(bytes, nullptr), 0};
  }
  std::shared_ptr<const KeptProgram> MakeProgram(int64_t bytes) {
    auto program = std::make_shared<KeptProgram>();
    program->program = std::make_shared<const Program>();
    program->booking = *memory_->Book(bytes, bytes, nullptr);
    return program;
  }
  std::shared_ptr<const KeptTape> Tape(
      int64_t bytes, std::shared_ptr<const KeptProgram> program) {
    auto tape = std::make_shared<KeptTape>();
    tape->bytes = *memory_->Take(bytes, nullptr);
    tape->program = std::move(program);
    tape->run.inputs.resize(2);
    return tape;
  }
  // Expects that the totals of `state` are those of its contents.
  static void ExpectCounted(const KeptState& state) {
    int64_t entry_bytes = 0, content_bytes = 0;
    const auto count = [&](const std::string& name, int64_t bytes) {
      entry_bytes += kEntryBytes + std::ssize(name);
      content_bytes += bytes;
    };
    for (const auto& [name, tensor] : state.tensors) {
      count(name, tensor.quota_bytes());
    }
    for (const auto& [name, program] : state.programs) {
      count(name, program->quota_bytes());
    }
    for (const auto& [name, tape] : state.tapes) {
      count(name, tape->quota_bytes());
    }
    EXPECT_EQ(state.totals.tensors, std::ssize(state.tensors));
    EXPECT_EQ(state.totals.programs, std::ssize(state.programs));
    EXPECT_EQ(state.totals.tapes, std::ssize(state.tapes));
    EXPECT_EQ(state.totals.entry_bytes, entry_bytes);
    EXPECT_EQ(state.totals.quota_bytes, entry_bytes + content_bytes);
  }
  // Returns a state with a tensor x, a program p and its tape t.
  KeptState Full() {
    KeptWrites writes;
    writes.tensors["x"] = Tensor(100);
    writes.programs["p"] = MakeProgram(5000);
    writes.tapes["t"] = Tape(1000, writes.programs["p"]);
    return After(KeptState(), writes);
  }

  const std::shared_ptr<KeptMemory> memory_ = std::make_shared<KeptMemory>(
      std::make_shared<CallMemory>(1 << 20, 8, 0,
                                   [](const auto& task) { task(); }),
      1 << 20);
};

TEST_F(KeptStateTest, AChangeIsOneNumberAndItsTensorsHaveIt) {
  const KeptState first = Full();
  EXPECT_EQ(first.number, 1);
  EXPECT_EQ(first.tensors.at("x").version, 1);
  ExpectCounted(first);
  KeptWrites writes;
  writes.tensors["y"] = Tensor(1);
  const KeptState second = After(first, writes);
  EXPECT_EQ(second.number, 2);
  EXPECT_EQ(second.tensors.at("x").version, 1);
  EXPECT_EQ(second.tensors.at("y").version, 2);
  ExpectCounted(second);
  // A reader of the first state sees no change.
  EXPECT_FALSE(first.tensors.contains("y"));
}

TEST_F(KeptStateTest, AWriteReplacesWhatHasTheName) {
  KeptWrites writes;
  writes.tensors["x"] = Tensor(9000);
  writes.programs["p"] = MakeProgram(1);
  const KeptState after = After(Full(), writes);
  EXPECT_EQ(after.tensors.at("x").bytes->size(), 9000);
  EXPECT_EQ(after.tensors.at("x").version, 2);
  ExpectCounted(after);
}

TEST_F(KeptStateTest, ADropEndsANameAndIsNoErrorWithoutOne) {
  KeptWrites writes;
  writes.tensors["x"] = std::nullopt;
  writes.tensors["never"] = std::nullopt;
  writes.programs["p"] = nullptr;
  const KeptState after = After(Full(), writes);
  EXPECT_TRUE(after.tensors.empty());
  EXPECT_TRUE(after.programs.empty());
  // The tape has its own reference to the program.
  EXPECT_EQ(after.tapes.size(), 1u);
  ExpectCounted(after);
}

TEST_F(KeptStateTest, TotalsAreKnownBeforeTheChange) {
  const KeptState state = Full();
  KeptWrites writes;
  writes.tensors["x"] = std::nullopt;
  writes.tapes["u"] = Tape(1, state.programs.at("p"));
  const KeptTotals totals = TotalsAfter(state, writes);
  const KeptTotals after = After(state, writes).totals;
  EXPECT_EQ(totals.tensors, after.tensors);
  EXPECT_EQ(totals.tapes, 2);
  EXPECT_EQ(totals.quota_bytes, after.quota_bytes);
}

TEST_F(KeptStateTest, WithoutTapesKeepsTheNumberAndTheRest) {
  const KeptState after = WithoutTapes(Full());
  EXPECT_EQ(after.number, 1);
  EXPECT_TRUE(after.tapes.empty());
  EXPECT_EQ(after.tensors.size(), 1u);
  EXPECT_EQ(after.programs.size(), 1u);
  ExpectCounted(after);
}

TEST_F(KeptStateTest, IsResumableWhenTheTapeOfAStepIsDropped) {
  KeptWrites of_trainer;
  of_trainer.trainer_state = std::make_shared<const std::string>("step 1");
  const KeptState with_tape = After(Full(), of_trainer);
  EXPECT_FALSE(IsResumable(with_tape));
  KeptWrites drop;
  drop.tapes["t"] = nullptr;
  EXPECT_TRUE(IsResumable(After(with_tape, drop)));
  EXPECT_TRUE(IsResumable(WithoutTapes(with_tape)));
  // Anything else begins the next step.
  drop.tensors["x"] = std::nullopt;
  EXPECT_FALSE(IsResumable(After(with_tape, drop)));
}

TEST_F(KeptStateTest, IsResumableBetweenTheTrainersSteps) {
  EXPECT_FALSE(IsResumable(Full()));
  KeptState state = WithoutTapes(Full());
  EXPECT_TRUE(IsResumable(state));
  KeptWrites of_trainer;
  of_trainer.trainer_state = std::make_shared<const std::string>("step 1");
  state = After(state, of_trainer);
  EXPECT_TRUE(IsResumable(state));
  KeptWrites within_step;
  within_step.tensors["x"] = std::nullopt;
  state = After(state, within_step);
  EXPECT_FALSE(IsResumable(state));
  EXPECT_EQ(*state.trainer_state, "step 1");
  EXPECT_TRUE(IsResumable(After(state, of_trainer)));
}

TEST_F(KeptStateTest, IsRestoredToAnotherState) {
  KeptWrites writes;
  writes.tensors["y"] = Tensor(300);
  writes.programs["p"] = MakeProgram(700);
  KeptState wanted = After(KeptState(), writes);
  const auto facts = std::make_shared<const MachineFacts>();
  wanted.computed_by = facts;
  KeptState state = Full();
  writes = KeptWrites();
  writes.trainer_state = std::make_shared<const std::string>("later");
  writes.programs["newer"] = MakeProgram(100);
  state = After(state, writes);
  const KeptState restored = After(state, WritesToRestore(state, wanted));
  ExpectCounted(restored);
  EXPECT_EQ(restored.number, state.number + 1);
  ASSERT_EQ(restored.tensors.size(), 1);
  EXPECT_EQ(restored.tensors.at("y").bytes, wanted.tensors.at("y").bytes);
  EXPECT_EQ(restored.tensors.at("y").version, restored.number);
  ASSERT_EQ(restored.programs.size(), 2);
  EXPECT_EQ(restored.programs.at("p"), wanted.programs.at("p"));
  EXPECT_TRUE(restored.tapes.empty());
  EXPECT_EQ(restored.trainer_state, nullptr);
  EXPECT_EQ(restored.computed_by, facts);
  EXPECT_TRUE(IsResumable(restored));
  const KeptState again = After(restored, WritesToRestore(restored, state));
  EXPECT_EQ(*again.trainer_state, "later");
  EXPECT_EQ(again.tensors.size(), state.tensors.size());
  EXPECT_TRUE(IsResumable(again));
}

TEST(CheckName, OfASnapshotMayHave128Bytes) {
  const auto check = [](const std::string& name) {
    return CheckName(name, "name", kMaxSnapshotNameBytes);
  };
  EXPECT_TRUE(check(std::string(128, 'n')).ok());
  EXPECT_FALSE(check(std::string(129, 'n')).ok());
  for (const auto* name : {"", "a/b", "a\\b", "\n", "\xff"}) {
    EXPECT_FALSE(check(name).ok()) << name;
  }
  EXPECT_FALSE(check(std::string("a\0b", 3)).ok());
}

TEST(CheckName, TakesPlainNamesOnly) {
  EXPECT_TRUE(CheckName("layer1.0.weight", "name").ok());
  EXPECT_TRUE(CheckName(std::string(255, 'a'), "name").ok());
  for (const std::string& bad :
       {std::string(), std::string(256, 'a'), std::string("a/b"),
        std::string("a\\b"), std::string("a\nb"), std::string("\xc3\xa9"),
        std::string("a\0b", 3)}) {
    const auto detail = DetailOf(CheckName(bad, "name"));
    ASSERT_TRUE(detail.has_value()) << bad;
    EXPECT_EQ(detail->field, "name");
  }
}

}  // namespace
}  // namespace convgrad

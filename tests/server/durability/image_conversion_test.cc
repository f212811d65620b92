#include "server/durability/image_conversion.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "backends/core/program/program.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/server/durability/stored_table.h"
#include "tests/server/sessions/no_archive.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

class ImageConversionTest : public ::testing::Test {
 protected:
  ImageConversionTest() { stored_.table.SetArchive(&archive_); }

  // Writes the session and returns what is loaded.
  absl::StatusOr<SessionCapture> WriteAndLoad(const SessionUse& use) {
    const auto capture = use->NewestCapture(absl::Now());
    const absl::StatusOr<CapturedImage> captured =
        Capture(use->settings(), *capture, {}, TextReplies(), memory());
    EXPECT_TRUE(captured.ok()) << captured.status();
    EXPECT_TRUE(stored_.store->Write(captured->image).ok());
    head_ = captured->image.head;
    return Load(use->settings().id);
  }
  absl::StatusOr<SessionCapture> Load(const std::string& id) {
    return LoadCapture(stored_.store.get(), SessionKeyOf(id), TextReplies(),
                       memory(), &broken_);
  }
  KeptMemory* memory() { return stored_.table.memory().get(); }

  MemoryFiles files_;
  NoArchive archive_;
  StoredTable stored_{&files_};
  snapshots::Session head_;
  std::vector<std::string> broken_;
};

TEST_F(ImageConversionTest, ASessionComesBackAsItWas) {
  const SessionUse use = stored_.Open('a', "digits");
  KeptWrites first = stored_.WritesOf("w", 3);
  first.trainer_state = std::make_shared<const std::string>("step 1");
  auto program = std::make_shared<KeptProgram>();
  program->program = std::make_shared<const Program>(
      *ParseProgram("input x\nparameter w [4, 4]\na = linear(x, w)\noutput a"));
  program->booking = *memory()->Book(1600, 1600, nullptr);
  first.programs["net"] = program;
  stored_.Change(use, first);
  KeptWrites second = stored_.WritesOf("w#gradient", 5);
  second.trainer_state = std::make_shared<const std::string>("step 2");
  stored_.Change(use, second);
  const absl::StatusOr<SessionCapture> loaded = WriteAndLoad(use);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(broken_.empty());
  const KeptState& state = *loaded->state;
  EXPECT_EQ(state.number, 2);
  EXPECT_EQ(*state.trainer_state, "step 2");
  ASSERT_EQ(state.tensors.size(), 2u);
  EXPECT_EQ(StoredTable::ValueOf(state, "w"), 3);
  EXPECT_EQ(state.tensors.at("w").version, 1);
  EXPECT_EQ(state.tensors.at("w#gradient").version, 2);
  EXPECT_EQ(state.tensors.at("w").descriptor,
            use->state()->tensors.at("w").descriptor);
  EXPECT_EQ(*state.programs.at("net")->program, *program->program);
  EXPECT_EQ(state.totals.entry_bytes, use->state()->totals.entry_bytes);
  EXPECT_EQ(state.totals.tensors, 2);
  ASSERT_EQ(loaded->replies.size(), 2u);
  EXPECT_EQ(loaded->replies[1].number, 2);
  EXPECT_EQ(loaded->replies[1].call_id, "call id number 2");
  EXPECT_EQ(*static_cast<const std::string*>(loaded->replies[1].reply.get()),
            "reply 2");
  EXPECT_EQ(head_.name(), "digits");
  EXPECT_EQ(head_.owner(), "ada");
  ASSERT_EQ(head_.readers_size(), 1);
  EXPECT_EQ(head_.readers(0), "reader");
  EXPECT_EQ(head_.id(), use->settings().id);
  EXPECT_EQ(head_.open_id(), std::string(16, 'a'));
}

TEST_F(ImageConversionTest, AStateKeepsTheServerThatComputedIt) {
  const SessionUse use = stored_.Open('a');
  stored_.Change(use, stored_.WritesOf("w", 3));
  SessionCapture capture = *use->NewestCapture(absl::Now());
  EXPECT_EQ(capture.state->computed_by, nullptr);
  const MachineFacts facts = {{"cpu", "this"}, {"os", "any"}};
  const auto image_of = [&](const MachineFacts& here) {
    return Capture(use->settings(), capture, here, TextReplies(), memory())
        ->image;
  };
  ASSERT_TRUE(stored_.store->Write(image_of(facts)).ok());
  capture = *Load(use->settings().id);
  const KeptState& loaded = *capture.state;
  EXPECT_EQ(*loaded.computed_by, facts);
  EXPECT_EQ(WithoutTapes(loaded).computed_by, loaded.computed_by);
  const snapshots::Session again = image_of({{"cpu", "another"}}).head;
  ASSERT_EQ(again.computed_by_size(), 2);
  EXPECT_EQ(again.computed_by(0).name(), "cpu");
  EXPECT_EQ(again.computed_by(0).text(), "this");
  EXPECT_EQ(After(loaded, stored_.WritesOf("w", 4)).computed_by, nullptr);
}

TEST_F(ImageConversionTest, LoadedBytesCountAsKept) {
  std::string id;
  {
    const SessionUse use = stored_.Open('a');
    id = use->settings().id;
    stored_.Change(use, stored_.WritesOf("w", 3));
    ASSERT_TRUE(WriteAndLoad(use).ok());
    stored_.table.EndAll(absl::UnavailableError("ends"));
  }
  EXPECT_EQ(memory()->used_bytes(), 0);
  {
    const absl::StatusOr<SessionCapture> loaded = Load(id);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_GE(memory()->used_bytes(), 16);
  }
  EXPECT_EQ(memory()->used_bytes(), 0);
}

TEST_F(ImageConversionTest, WithoutMemoryALoadIsBusyAndNotLost) {
  const SessionUse use = stored_.Open('a');
  stored_.Change(use, stored_.WritesOf("w", 3));
  ASSERT_TRUE(WriteAndLoad(use).ok());
  const Reservation all = *stored_.memory->budget.TryReserve(
      stored_.memory->budget.capacity_bytes() -
      stored_.memory->budget.used_bytes());
  const absl::Status status = Load(use->settings().id).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(status)->reason, Reason::kBusy);
}

TEST_F(ImageConversionTest, WhatIsDamagedOrMissingIsDataLoss) {
  const absl::Status missing = Load(std::string(16, 'n')).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DetailOf(missing)->reason, Reason::kMalformed);
  SessionImage image;
  image.head.set_id(std::string(16, 'i'));
  image.head.set_open_id(std::string(16, 'o'));
  image.head.set_client("ada");
  image.head.set_lease_nanoseconds(60'000'000'000);
  const auto text = std::make_shared<const std::string>("no program");
  image.programs.push_back(
      {"net",
       {text,
        {reinterpret_cast<const std::byte*>(text->data()), text->size()}}});
  const absl::Status written = stored_.store->Write(image);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(Load(image.head.id()).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace convgrad

// `StoredTable` is a table of sessions over a store in memory, for tests.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/durability/image_conversion.h"
#include "server/sessions/session_table.h"
#include "server/snapshots/file_system.h"
#include "server/snapshots/snapshot_store.h"

namespace convgrad {

// Replies are strings.
inline ReplyFormat TextReplies() {
  ReplyFormat format;
  format.write =
      [](const ChangeOrder::Reply& reply) -> absl::StatusOr<SharedBytes> {
    const auto text = std::static_pointer_cast<const std::string>(reply);
    return SharedBytes{reinterpret_cast<const std::byte*>(text->data()),
                       std::ssize(*text), text};
  };
  format.read = [](const SharedBytes& bytes) {
    return std::make_shared<const std::string>(
        reinterpret_cast<const char*>(bytes.data), bytes.size);
  };
  return format;
}

// A server's part that keeps sessions. A second one over the same files is a
// server that was started again. Thread-compatible.
struct StoredTable {
  explicit StoredTable(FileSystem* files)
      : store(*SnapshotStore::Open("state", files)) {}

  // Opens a durable session. Requires: the table has an archive.
  SessionUse Open(char open_id, const std::string& name = "",
                  const std::string& client = "ada") {
    SessionRequest request;
    request.open_id = std::string(16, open_id);
    request.name = name;
    request.readers = {"reader"};
    request.durable = true;
    absl::StatusOr<SessionUse> use = table.Open({client, true, false}, request);
    EXPECT_TRUE(use.ok()) << use.status();
    return *std::move(use);
  }

  // Commits the next change, which writes these. The reply is "reply NUMBER".
  void Change(const SessionUse& use, const KeptWrites& writes) {
    const int64_t number = use->state()->number + 1;
    use->Arrive(
        {use->info().epoch, number,
         "call id number " + std::to_string(number % 10), 0},
        table.now(),
        {absl::InfiniteFuture(), [](const ChangeOrder::Decision& decision) {
           EXPECT_TRUE(decision.runs()) << decision.why;
         }});
    EXPECT_TRUE(use->Promise(writes, {}).ok());
    EXPECT_TRUE(use->Commit(writes,
                            std::make_shared<const std::string>(
                                "reply " + std::to_string(number)),
                            table.now())
                    .ok());
  }
  // Returns the writes of a tensor `name` of four numbers.
  KeptWrites WritesOf(const std::string& name, float value) {
    const TensorDescriptor tensor{DataType::kF32, Layout::kNCX, {4}};
    auto bytes = *table.memory()->Take(16, nullptr);
    std::fill_n(reinterpret_cast<float*>(bytes->data()), 4, value);
    KeptWrites writes;
    writes.tensors[name] = KeptTensor{tensor, std::move(bytes), 0};
    return writes;
  }
  static float ValueOf(const KeptState& state, const std::string& name) {
    return *reinterpret_cast<const float*>(
        state.tensors.at(name).bytes->data());
  }

  std::unique_ptr<SnapshotStore> store;
  const std::shared_ptr<CallMemory> memory = std::make_shared<CallMemory>(
      1 << 20, 8, 0, [](const auto& task) { task(); });
  SessionTable table{std::make_shared<KeptMemory>(memory, 1 << 19), {}, [] {
                       return absl::Now();
                     }};
};

}  // namespace convgrad

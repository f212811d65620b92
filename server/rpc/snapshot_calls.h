// These calls keep, restore and drop snapshots of a durable session.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// `SnapshotCall` is the base of calls that name a snapshot.
class SnapshotCall : public MessageCall {
 public:
  using MessageCall::MessageCall;

 protected:
  // Checks that the session is durable, and that `name` is the name of a
  // snapshot or, if the call `may_lack` one, empty.
  absl::Status Check(const std::string& name, bool may_lack);
};

// `SaveStateCall` answers when a snapshot of the session is on disk.
class SaveStateCall final : public SnapshotCall {
 public:
  using SnapshotCall::SnapshotCall;

 private:
  absl::Status OnMessage() override;
};

// `RestoreStateCall` commits the content of a snapshot as one change.
class RestoreStateCall final : public SnapshotCall {
 public:
  using SnapshotCall::SnapshotCall;

 private:
  absl::Status OnMessage() override;
  void Restore(const KeptState& snapshot);
};

// `DropStateCall` answers when the name isn't on disk.
class DropStateCall final : public SnapshotCall {
 public:
  using SnapshotCall::SnapshotCall;

 private:
  absl::Status OnMessage() override;
};

}  // namespace convgrad
